package devices

import (
	"testing"

	"github.com/onsi/gomega"

	"svc.dev/svc/svclet/topology"
)

func TestHintsHaveTheNodesOfTheDevicesThatAContainerTakesOverFromAnInitContainer(t *testing.T) {
	f := newFixture(t, t.TempDir())
	f.plugin(nil, on(0, "a"), on(1, "b"))
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))
	pod, main := needing("1", "1")
	first, _ := needing("1", "1")
	first.Spec.Containers[0].Name = "first"
	pod.Spec.InitContainers = first.Spec.Containers
	f.Expect(f.Allocate(pod, &pod.Spec.InitContainers[0], topology.NewMask(0))).To(gomega.Succeed())
	f.Expect(f.Hints(pod, main)[gpu]).To(gomega.Equal([]topology.Hint{{Nodes: 1, Preferred: true}, {Nodes: 3}}))

	f.Expect(f.Allocate(pod, main, topology.NewMask(0))).To(gomega.Succeed())
	other := main.DeepCopy()
	other.Name = "other"
	f.Expect(f.Hints(pod, other)[gpu]).To(gomega.Equal([]topology.Hint{{Nodes: 2, Preferred: true}, {Nodes: 3}}), "the first one's device is taken")
}
