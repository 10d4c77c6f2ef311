package decision

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	devicesapi "svc.dev/svc/apis/devices"
	"svc.dev/svc/apis/podspec"
)

// ExtendedStatus is what to write into status.extendedResourceClaimStatus of a pod: nil
// removes it.
type ExtendedStatus struct {
	*corev1.PodExtendedResourceClaimStatus
}

// extendedRequest is what a pod needs of devices for its extended resources (KEP-5004). A
// node that offers such a resource itself gives it to the pod without a claim; on others the
// pod gets devices of the resource's class. So each node may need another claim.
type extendedRequest struct {
	pod *corev1.Pod
	// classes are the names of the classes by resource.
	classes map[corev1.ResourceName]string
	// made is the claim that exists already, or is being written; nil if there is none.
	made *resourcev1.ResourceClaim
	// claims are those for the nodes so far.
	claims []*extendedClaim
}

// extendedClaim is what a pod needs on nodes that do not offer some of its resources.
type extendedClaim struct {
	missing  []corev1.ResourceName
	requests []resourcev1.DeviceRequest
	mappings []corev1.ContainerExtendedResourceRequest
}

// RequestsClass reports whether a container of a pod requests a resource that a device class
// offers; nil offers none.
func RequestsClass(pod *corev1.Pod, class *resourcev1.DeviceClass) bool {
	if class == nil {
		return false
	}
	for _, c := range podspec.NonEphemeral(&pod.Spec) {
		for name := range c.Resources.Requests {
			if devicesapi.Offers(class, name) {
				return true
			}
		}
	}
	return false
}

// classesFor returns the names of the device classes that offer extended resources which
// containers of the pod request, by resource.
func (d *devices) classesFor(r *request) map[corev1.ResourceName]string {
	if !r.profile.ExtendedResources || r.profile.Disabled.Has(dynamicResources) || len(r.needs.others) == 0 || len(d.classes) == 0 {
		return nil
	}
	found := map[corev1.ResourceName]string{}
	for _, c := range podspec.NonEphemeral(&r.pod.Spec) {
		for name, amount := range c.Resources.Requests {
			if amount.IsZero() {
				continue
			}
			if class := devicesapi.ClassOf(name, maps.Values(d.classes)); class != nil {
				found[name] = class.Name
			}
		}
	}
	return found
}

// extended returns what a pod needs for its extended resources, nil if it needs nothing.
func (d *devices) extended(pod *corev1.Pod, classes map[corev1.ResourceName]string) *extendedRequest {
	if len(classes) == 0 && d.extendedClaims[pod.UID] == "" && len(d.assumed) == 0 {
		return nil // as most pods
	}
	e := &extendedRequest{pod: pod, classes: classes}
	name := objectName{pod.Namespace, cmp.Or(d.extendedClaims[pod.UID], extendedClaimName(pod))}
	if a := d.assumed[name]; a != nil && a.pod == pod.UID {
		e.made = a.claim
	} else if claim := d.claims[name]; claim != nil && devicesapi.ExtendedClaimOf(claim) == pod.UID {
		e.made = claim
	}
	if len(classes) == 0 && e.made == nil {
		return nil
	}
	return e
}

// on returns the claim that the pod needs on a node, nil if it needs none there.
func (e *extendedRequest) on(n *node) *extendedClaim {
	var missing []corev1.ResourceName
	for name := range e.classes {
		if n.lacks(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	for _, c := range e.claims {
		if slices.Equal(c.missing, missing) {
			return c
		}
	}
	c := &extendedClaim{missing: missing}
	for _, name := range missing {
		c.request(&e.pod.Spec, name, e.classes[name])
	}
	slices.SortFunc(c.requests, func(a, b resourcev1.DeviceRequest) int { return cmp.Compare(a.Name, b.Name) })
	e.claims = append(e.claims, c)
	return c
}

// lacks reports whether no device plugin of the node offers a resource.
func (n *node) lacks(name corev1.ResourceName) bool { return n.allocatable.others[name] == 0 }

// usable reports whether the claim that exists is the one that the pod needs on a node.
func (e *extendedRequest) usable(n *node) bool {
	if e.made == nil {
		return true
	}
	c := e.on(n)
	return c != nil && slices.EqualFunc(c.requests, e.made.Spec.Devices.Requests, func(a, b resourcev1.DeviceRequest) bool {
		return b.Exactly != nil && a.Name == b.Name && a.Exactly.DeviceClassName == b.Exactly.DeviceClassName &&
			a.Exactly.AllocationMode == b.Exactly.AllocationMode && a.Exactly.Count == b.Exactly.Count
	})
}

// toAllocate returns the claim that is to be allocated for the pod to run on a node, nil if
// there is none.
func (e *extendedRequest) toAllocate(n *node) *resourcev1.ResourceClaim {
	switch c := e.on(n); {
	case e.made != nil && e.made.Status.Allocation == nil:
		return e.made
	case e.made != nil || c == nil:
		return nil
	default:
		return newExtendedClaim(e.pod, c.requests)
	}
}

// status returns what the status of the pod says of its claim if it runs on a node.
func (e *extendedRequest) status(n *node) *corev1.PodExtendedResourceClaimStatus {
	c := e.on(n)
	if c == nil {
		return nil
	}
	name := extendedClaimName(e.pod)
	if e.made != nil {
		name = e.made.Name
	}
	return &corev1.PodExtendedResourceClaimStatus{RequestMappings: c.mappings, ResourceClaimName: name}
}

// extendedStatus returns what to write into the status of the pod for it to run on a node;
// nil if its status is right.
func (r *request) extendedStatus(n *node) *ExtendedStatus {
	if !r.profile.ExtendedResources {
		return nil
	}
	var status *corev1.PodExtendedResourceClaimStatus
	if r.devices != nil && r.devices.extended != nil {
		status = r.devices.extended.status(n)
	}
	if resourceclaim.PodExtendedStatusEqual(status, r.pod.Status.ExtendedResourceClaimStatus) {
		return nil
	}
	return &ExtendedStatus{status}
}

// The longest prefix, and the length of the rest, of the name of a claim: together they are as
// long as the API server lets generated names be.
const (
	maxClaimPrefix = 53
	claimSuffix    = 10
)

// extendedClaimName returns the name of the claim for the extended resources of a pod. It is
// always the same, so that a write whose response was lost makes no second claim.
func extendedClaimName(pod *corev1.Pod) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(pod.UID)) // never fails
	prefix := extendedClaimPrefix(pod)
	return prefix[:min(len(prefix), maxClaimPrefix)] + rand.SafeEncodeString(fmt.Sprintf("%016x", hash.Sum64()))[:claimSuffix]
}

func extendedClaimPrefix(pod *corev1.Pod) string { return pod.Name + "-extended-resources-" }

// newExtendedClaim returns the claim for the extended resources of a pod, which owns it.
func newExtendedClaim(pod *corev1.Pod, requests []resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: extendedClaimName(pod), GenerateName: extendedClaimPrefix(pod),
			Annotations:     map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
}

// request adds the requests of devices in place of a resource. Each container and sidecar has
// a request of its own. An init container first uses the devices of containers that start
// after it, and all init containers share the largest request that is needed beyond those.
func (c *extendedClaim) request(spec *corev1.PodSpec, resource corev1.ResourceName, class string) {
	var lasting []*resourcev1.DeviceRequest // by container, nil if it has none
	var shared *resourcev1.DeviceRequest
	var sharing []int // mappings of init containers to the shared request
	var inits, others []corev1.ContainerExtendedResourceRequest
	containers := slices.Concat(spec.InitContainers, spec.Containers)
	for i := range containers {
		lasting = append(lasting, nil)
		if i >= len(spec.InitContainers) || podspec.IsSidecar(podspec.InitContainers, &containers[i]) {
			if amount := amountOf(&containers[i], resource); amount > 0 {
				lasting[i] = deviceRequest(i, &containers[i], resource, class, amount)
				others = append(others, mapping(&containers[i], resource, lasting[i]))
			}
		}
	}
	for i := range spec.InitContainers {
		init := &containers[i]
		left := amountOf(init, resource)
		if podspec.IsSidecar(podspec.InitContainers, init) || left == 0 {
			continue
		}
		for _, later := range lasting[i:] {
			if later != nil && left > 0 {
				inits = append(inits, mapping(init, resource, later))
				left -= later.Exactly.Count
			}
		}
		if left <= 0 {
			continue
		}
		if shared == nil || shared.Exactly.Count < left {
			shared = deviceRequest(i, init, resource, class, left)
		}
		sharing = append(sharing, len(inits))
		inits = append(inits, mapping(init, resource, shared))
	}
	for _, i := range sharing {
		inits[i].RequestName = shared.Name
	}
	for _, r := range append(lasting, shared) {
		if r != nil {
			c.requests = append(c.requests, *r)
		}
	}
	c.mappings = slices.Concat(c.mappings, others, inits)
}

func amountOf(c *corev1.Container, resource corev1.ResourceName) int64 {
	amount := c.Resources.Requests[resource]
	return amount.Value()
}

// deviceRequest returns a request for the i-th container, init containers first. The second
// number of its name is the position of the resource among the sorted ones that the container
// requests.
func deviceRequest(i int, c *corev1.Container, resource corev1.ResourceName, class string, amount int64) *resourcev1.DeviceRequest {
	position := slices.Index(podspec.SortedNames(c.Resources.Requests), resource)
	return &resourcev1.DeviceRequest{Name: fmt.Sprintf("container-%d-request-%d", i, position), Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: amount,
	}}
}

func mapping(c *corev1.Container, resource corev1.ResourceName, r *resourcev1.DeviceRequest) corev1.ContainerExtendedResourceRequest {
	return corev1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: string(resource), RequestName: r.Name}
}
