package devices

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestTheHealthOfTheDevicesOfContainersIsShown(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(t, dir)
	changed := make(chan []types.UID, 10)
	f.o.HealthChanged = func(pods []types.UID) { changed <- pods }
	p := f.plugin(nil, on(0, "a"), on(0, "b"), on(0, "c"))
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	pod, c := needing("1", "2")
	f.Expect(f.Allocate(pod, c, 0)).To(gomega.Succeed())
	f.Expect(f.Save()).To(gomega.Succeed())
	shown := func(a, b corev1.ResourceHealthStatus) []corev1.ResourceStatus {
		return []corev1.ResourceStatus{{Name: gpu, Resources: []corev1.ResourceHealth{{ResourceID: "a", Health: a}, {ResourceID: "b", Health: b}}}}
	}
	const healthy, unhealthy = corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy
	f.Expect(f.Health("1", "c")).To(gomega.Equal(shown(healthy, healthy)))
	f.Expect(f.Health("1", "other")).To(gomega.BeNil())

	sick := func(id string) *pluginapi.Device {
		d := on(0, id)
		d.Health = pluginapi.Unhealthy
		return d
	}
	p.list <- []*pluginapi.Device{on(0, "a"), on(0, "b"), sick("c")}
	f.Eventually(f.counts).Should(gomega.Equal("3/2"))
	f.Expect(changed).NotTo(gomega.Receive(), "no pod has the device c")
	p.list <- []*pluginapi.Device{on(0, "a"), sick("b"), sick("c")}
	f.Expect(<-changed).To(gomega.Equal([]types.UID{"1"}))
	f.Expect(f.Health("1", "c")).To(gomega.Equal(shown(healthy, unhealthy)))

	p.server.Stop()
	f.Expect(<-changed).To(gomega.Equal([]types.UID{"1"}))
	f.Expect(f.Health("1", "c")).To(gomega.Equal(shown(unhealthy, unhealthy)), "the plugin has ended")

	f.stop()
	f = newFixture(t, dir)
	f.Expect(f.Health("1", "c")).To(gomega.Equal(shown(healthy, healthy)), "no plugin has registered with this agent yet")
	f.Release("1")
	f.Expect(f.Health("1", "c")).To(gomega.BeNil())
}
