package admit

import (
	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
)

// Untolerated returns a taint of the node that the pod does not tolerate, or nil.
// Taints that only affect scheduling do not count.
func Untolerated(pod *corev1.Pod, node *corev1.Node) *corev1.Taint {
	taint, found := schedulinghelper.FindMatchingUntoleratedTaint(
		klog.Logger{}, node.Spec.Taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, true)
	if !found {
		return nil
	}
	return &taint
}

// hostPort is a port of the node that a pod uses.
type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

const everyIP = "0.0.0.0"

func (p hostPort) conflicts(other hostPort) bool {
	return p.port == other.port && p.protocol == other.protocol &&
		(p.ip == other.ip || p.ip == everyIP || other.ip == everyIP)
}

func portConflict(pod *corev1.Pod, others []*corev1.Pod) bool {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return false
	}
	for _, other := range others {
		for _, used := range hostPorts(other) {
			for _, port := range wanted {
				if port.conflicts(used) {
					return true
				}
			}
		}
	}
	return false
}

// hostPorts returns the host ports of containers that run as long as the pod does.
func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	collect := func(container *corev1.Container) {
		for _, p := range container.Ports {
			if p.HostPort <= 0 {
				continue
			}
			port := hostPort{ip: p.HostIP, protocol: p.Protocol, port: p.HostPort}
			if port.ip == "" {
				port.ip = everyIP
			}
			if port.protocol == "" {
				port.protocol = corev1.ProtocolTCP
			}
			ports = append(ports, port)
		}
	}
	for at, container := range podspec.NonEphemeral(&pod.Spec) {
		if at.List == podspec.Containers || podspec.IsSidecar(at.List, container) {
			collect(container)
		}
	}
	return ports
}
