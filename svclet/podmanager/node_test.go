package podmanager

import (
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/source"
)

// changingNode is a Node that changes.
type changingNode struct{ object atomic.Pointer[corev1.Node] }

func (n *changingNode) Object() *corev1.Node { return n.object.Load() }
func (n *changingNode) Known() bool          { return true }

func (n *changingNode) set(addresses ...string) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}}}
	for _, a := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.object.Store(node)
}

// probedAt records the addresses at which a pod is probed.
type probedAt struct {
	*fakes
	node    *changingNode
	address atomic.Value
}

func (p *probedAt) PodIP(*corev1.Pod, pod.Observed) string {
	if ips := nodeconfig.HostIPs(p.node.Object()); len(ips) > 0 {
		return ips[0]
	}
	return ""
}

func (p *probedAt) Sync(_ types.UID, _ *corev1.Pod, podIP string, _ []pod.Probe) {
	p.address.Store(podIP)
}

func TestPodsShowTheAddressesThatTheNodeGetsLater(t *testing.T) {
	r := newFixture(t)
	node := &changingNode{}
	node.set()
	probes := &probedAt{fakes: r.fakes, node: node}
	options := r.o
	options.Node, options.Executor, options.Probes = node, probes, probes
	r.Manager = New(options)
	r.run(t)
	static := testPod("static", "static")
	static.Spec.HostNetwork, static.Status = true, corev1.PodStatus{}
	r.updates <- source.Update{Source: source.File, Set: []*corev1.Pod{static}}
	status := func() corev1.PodStatus {
		p, _ := r.Get("ns", "static")
		if p == nil {
			return corev1.PodStatus{}
		}
		return p.Status
	}
	r.Eventually(func() corev1.PodPhase { return status().Phase }).Should(gomega.Equal(corev1.PodPending))
	r.Expect(status().HostIP).To(gomega.BeEmpty())
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		node.set(address)
		r.o.Queue.NodeChanged()
		r.Eventually(func() string { return status().HostIP }).Should(gomega.Equal(address))
		r.Expect(status().PodIP).To(gomega.Equal(address))
		r.Eventually(func() any { return probes.address.Load() }).Should(gomega.Equal(address))
	}
}
