package decision

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// resourceClaimsOfNamespace is the number of resource claims in each namespace of a random
	// cluster.
	resourceClaimsOfNamespace = 4
	// offered is a resource that device plugins and a class may offer, and implicit one that
	// only a class does.
	offered, implicit corev1.ResourceName = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"
)

// devicesProfile is a profile with the features of devices, which scores the extended resources,
// too, if it scores devices. It does not balance the use of a class with expressions:
// kube-scheduler 1.36 crashes then.
func devicesProfile(scored bool) *Profile {
	p := DefaultProfile("")
	p.ExtendedResources, p.DeviceBindTimeout = true, DefaultDeviceBindTimeout
	if scored {
		p.Strategy = &Strategy{Type: LeastAllocated, Resources: []WeightedResource{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}, {offered, 3}, {implicit, 2}}}
		p.Balanced = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, implicit}
	}
	return p
}

// withDevices adds resource claims and extended resources to the line of a pod.
func (w *clusterState) withDevices(line string) string {
	namespace := parsePod(line).Namespace
	for range 2 {
		if w.Float64() < 0.3 {
			claim := " device=" + resourceClaimName(namespace, w.IntN(resourceClaimsOfNamespace))
			if !strings.Contains(line, claim) {
				line += claim
			}
		}
	}
	return line + w.maybe(0.2, string(offered)+"=1", string(offered)+"=2", "init:"+string(offered)+"=1", string(implicit)+"=1") + w.maybe(0.01, "device=absent")
}

func resourceClaimName(namespace string, i int) string {
	return fmt.Sprintf("%s-devices-%d", namespace, i)
}

// buildDevices makes device classes, the devices of nodes, and resource claims: allocated ones,
// some of which wait for binding conditions of their devices, and others. The name of a device
// determines its model, and that of a selector's zone the cluster: kube-scheduler remembers for
// good which devices an expression and which nodes a selector matches.
func (w *clusterState) buildDevices(q *question, seed uint64) {
	for _, line := range []string{"gpu", "large model=large" + w.maybe(0.5, "offers="+string(offered)), "small model=small"} {
		w.record("deviceclass " + line)
		q.DeviceClasses = append(q.DeviceClasses, parseDeviceClass(line))
		w.snapshot.SetDeviceClass(q.DeviceClasses[len(q.DeviceClasses)-1])
	}
	var have []string
	for _, n := range q.Nodes {
		have = append(have, w.devices(q, n.Name, seed)...)
	}
	for _, other := range []string{"in:" + w.zone(), "all"} {
		if w.Float64() < 0.2 {
			w.devices(q, other, seed)
		}
	}
	for _, namespace := range q.Namespaces {
		for i := range resourceClaimsOfNamespace {
			w.resourceClaim(q, namespace.Name, resourceClaimName(namespace.Name, i), have)
		}
	}
}

// devices makes the devices of a node, of the nodes of a zone or of all, and returns their names
// as an allocation has them.
func (w *clusterState) devices(q *question, where string, seed uint64) []string {
	var names []string
	line := where
	for i := range w.IntN(4) {
		model := w.one("large", "small")
		device := fmt.Sprintf("%s-%d", model, i)
		if binds := w.maybe(0.2, ":Attached!Broken"); binds == "" {
			line += fmt.Sprintf(" %s=%s", device, model)
			names = append(names, where+"/"+device)
		} else {
			line += fmt.Sprintf(" %s=%s%s", device, model, strings.TrimSpace(binds))
			names = append(names, where+"/"+device+strings.TrimSpace(binds))
		}
	}
	w.record("devices " + line)
	slice := parseDevices(line)
	if slice.Spec.NodeSelector != nil {
		requirement := &slice.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0]
		requirement.Values = append(requirement.Values, fmt.Sprint("cluster-", seed))
	}
	q.Slices = append(q.Slices, slice)
	w.snapshot.SetResourceSlice(slice)
	return names
}

func (w *clusterState) resourceClaim(q *question, namespace, name string, devices []string) {
	line := name + " ns=" + namespace
	switch kind := w.IntN(20); {
	case kind < 6 && len(devices) > 0:
		device := w.one(devices...)
		line += " class=gpu device=" + device
		if strings.Contains(device, ":") {
			line += w.maybe(0.7, "has=Attached", "has=Broken", "has=Attached has=Broken", "has=Other")
		}
		line += w.maybe(0.5, "for=another", "for=asks0", "for=asks1 for=another")
	case kind < 13:
		line += " class=" + w.one("gpu", "large", "small") + w.maybe(0.3, "count=2")
	case kind < 18:
		line += " first=" + w.one("large|small", "small|large|gpu", "absent|gpu")
	case kind < 19:
		line += " class=absent"
	default:
		line += " class=gpu deleting"
	}
	w.record("resourceclaim " + line)
	claim := parseResourceClaim(line)
	for i := range claim.Status.ReservedFor {
		consumer := &claim.Status.ReservedFor[i]
		consumer.UID = parsePod(consumer.Name + " ns=" + namespace).UID
	}
	if claim.DeletionTimestamp != nil {
		claim.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	}
	q.ResourceClaims = append(q.ResourceClaims, claim)
	w.snapshot.SetResourceClaim(claim)
}
