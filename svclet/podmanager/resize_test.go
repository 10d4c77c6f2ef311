package podmanager

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/resize"
	"svc.dev/svc/svclet/source"
)

// small is a node with two CPUs.
type small struct{ *fakes }

func (small) Object() *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("9"),
	}}}
}

func asking(name, cpu string, priority int32) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	p.Spec.Priority = &priority
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}}
	return p
}

// newSmallFixture is a fixture of a small node, on which the pods have been allocated what they
// ask for.
func newSmallFixture(t *testing.T, pods ...*corev1.Pod) *fixture {
	r := newFixture(t)
	allocated, err := resize.Load(t.TempDir())
	r.Expect(err).NotTo(gomega.HaveOccurred())
	for _, p := range pods {
		r.Expect(allocated.Set(p)).To(gomega.Succeed())
	}
	r.o.Node, r.o.Resizes.Allocations = small{r.fakes}, allocated
	return r
}

// cpu returns what a pod has been allocated; empty if it is not known.
func (r *fixture) cpu(name string) func() string {
	return func() string {
		p := r.Find(types.UID(name))
		if p == nil {
			return ""
		}
		return p.Spec.Containers[0].Resources.Requests.Cpu().String()
	}
}

// TestAPodWithAPendingResizeIsAdmittedWithWhatItHas: the runtime holds nothing of it any more
// when the agent starts, as after a reboot.
func TestAPodWithAPendingResizeIsAdmittedWithWhatItHas(t *testing.T) {
	r := newSmallFixture(t, asking("p", "1", 0))
	r.run(t)
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{asking("p", "3", 0)}, Ready: true}
	r.Eventually(func() bool { return r.IsKnown("p") }).Should(gomega.BeTrue())
	r.Expect(r.cpu("p")()).To(gomega.Equal("1"))
	r.Expect(r.get("p").IsActive()).To(gomega.BeTrue())
	r.updates <- source.Update{Source: source.API, Set: []*corev1.Pod{asking("p", "2", 0)}}
	r.Eventually(r.cpu("p")).Should(gomega.Equal("2"))
}

func TestResizesWaitForWhatIsFreeByPriority(t *testing.T) {
	r := newSmallFixture(t)
	r.run(t)
	set := func(pods ...*corev1.Pod) {
		r.updates <- source.Update{Source: source.API, Set: pods, Ready: true}
	}
	cpu := r.cpu
	set(asking("low", "500m", 1), asking("high", "500m", 2), asking("other", "1", 0))
	r.Eventually(cpu("other")).Should(gomega.Equal("1"))
	set(asking("low", "1", 1))
	set(asking("high", "1", 2))
	set(asking("other", "800m", 0)) // which is not enough for either
	r.Eventually(cpu("other")).Should(gomega.Equal("800m"))
	r.Expect([]string{cpu("low")(), cpu("high")()}).To(gomega.Equal([]string{"500m", "500m"}))
	set(asking("other", "500m", 0)) // which is enough for one
	r.Eventually(cpu("high")).Should(gomega.Equal("1"))
	r.Expect(cpu("low")()).To(gomega.Equal("500m"))
	set(asking("low", "250m", 1)) // it changes its mind
	r.Eventually(cpu("low")).Should(gomega.Equal("250m"))
}
