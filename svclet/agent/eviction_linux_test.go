package agent

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/eviction"
)

// measured are stats that always return the same summary.
type measured struct{ summary *statsapi.Summary }

func (m measured) Summary(context.Context, bool) (*statsapi.Summary, error) { return m.summary, nil }

func (m measured) Probe() (*statsapi.Summary, error) { return m.summary, nil }

func TestAPodWhoseVolumeExceedsItsLimitFailsAndNoOther(t *testing.T) {
	c := newCluster(t)
	c.start()
	bounded := func(p *corev1.Pod) {
		volume := &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Ki"))}
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: volume}}}
	}
	pods := map[string][]func(*corev1.Pod){
		"full": {bounded}, "unbounded": nil,
		"critical": {bounded, func(p *corev1.Pod) { p.Spec.Priority = ptr.To[int32](2_000_000_000) }},
	}
	summary := &statsapi.Summary{}
	for name, changes := range pods {
		c.create(name, changes...)
		summary.Pods = append(summary.Pods, statsapi.PodStats{
			PodRef:      statsapi.PodReference{Name: name, Namespace: "default", UID: "uid-" + name},
			VolumeStats: []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: ptr.To[uint64](1025)}}},
		})
	}
	phases := func() map[string]corev1.PodPhase {
		phases := map[string]corev1.PodPhase{}
		for name := range pods {
			phases[name] = c.api.Pod("default", name).Status.Phase
		}
		return phases
	}
	running := corev1.PodRunning
	c.Eventually(phases).Should(gomega.Equal(map[string]corev1.PodPhase{"full": running, "unbounded": running, "critical": running}))

	clock := testingclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	manager := eviction.NewManager(eviction.Options{Pods: c.agent.pods, Stats: measured{summary}, Clock: clock, StorageLimits: true})
	go manager.Run(t.Context())
	c.Eventually(func() map[string]corev1.PodPhase {
		clock.Step(10 * time.Second) // The summary shows the excess again each time.
		return phases()
	}).Should(gomega.Equal(map[string]corev1.PodPhase{"full": corev1.PodFailed, "unbounded": running, "critical": running}))
	status := c.api.Pod("default", "full").Status
	c.Expect(status.Reason).To(gomega.Equal("Evicted"))
	c.Expect(status.Message).To(gomega.Equal(`Usage of EmptyDir volume "v" exceeds the limit "1Ki". `))
	c.Expect(status.Conditions).NotTo(gomega.ContainElement(gomega.HaveField("Type", corev1.DisruptionTarget)))
	evictions, err := c.agent.metrics.Gatherer().Gather()
	c.Expect(err).NotTo(gomega.HaveOccurred())
	var count float64
	var names []string
	for _, family := range evictions {
		names = append(names, family.GetName())
		if family.GetName() == "kubelet_evictions" {
			count = family.Metric[0].GetCounter().GetValue()
		}
	}
	c.Expect(count).To(gomega.BeEquivalentTo(1))
	c.Expect(names).To(gomega.ContainElements("rest_client_requests_total", "rest_client_request_duration_seconds"))
}
