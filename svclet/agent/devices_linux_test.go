package agent

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"svc.dev/svc/svclet/devices/devicetest"
)

func TestTheNodeHasTheDevicesOfPlugins(t *testing.T) {
	const gpu = "example.com/gpu"
	c := newCluster(t)
	c.start()
	var mu sync.Mutex
	called := map[string]bool{}
	p, err := devicetest.Start(devicetest.Options{
		Resource: gpu, Devices: []string{"a", "b"}, Registry: filepath.Join(c.root(), "plugins_registry"), Dir: filepath.Dir(c.runtime.Endpoint()[len("unix://"):]),
		Called: func(method string, _ any) {
			mu.Lock()
			defer mu.Unlock()
			called[method] = true
		},
	})
	c.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(p.Stop)
	healthy := func() string {
		n := c.api.Node("node")
		if n == nil {
			return ""
		}
		q := n.Status.Allocatable[gpu]
		return q.String()
	}
	c.Eventually(healthy).Should(gomega.Equal("2"))
	c.create("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	})
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	mu.Lock()
	c.Expect(called).To(gomega.And(gomega.HaveKey("GetPreferredAllocation"), gomega.HaveKey("Allocate"), gomega.HaveKey("PreStartContainer")))
	mu.Unlock()
	shown := func(health corev1.ResourceHealthStatus) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{{Name: gpu, Resources: []corev1.ResourceHealth{{ResourceID: "b", Health: health}}}}
	}
	status := func() []corev1.ResourceStatus {
		return c.api.Pod("default", "a").Status.ContainerStatuses[0].AllocatedResourcesStatus
	}
	c.Eventually(status).Should(gomega.Equal(shown(corev1.ResourceHealthStatusHealthy)), "the plugin prefers the last one")
	c.Expect(p.SetUnhealthy(t.Context(), "b")).To(gomega.Succeed())
	c.Eventually(status).Should(gomega.Equal(shown(corev1.ResourceHealthStatusUnhealthy)))
	c.Eventually(healthy).Should(gomega.Equal("1"))
}
