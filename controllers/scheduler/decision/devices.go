package decision

import (
	"cmp"
	"context" //nolint:depguard // see allocator.go
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	devicesapi "svc.dev/svc/apis/devices"
)

// DeviceDecision is what to write into the status of a resource claim before the pod is
// bound: the pod as a consumer and, unless the claim is allocated already, its devices.
type DeviceDecision struct {
	// Claim is the name of the claim, in the pod's namespace.
	Claim string
	// Allocation is nil for a claim that is allocated already.
	Allocation *resourcev1.AllocationResult
	// Create is the claim to create if it does not exist: that for the extended resources of
	// the pod. Nil for others.
	Create *resourcev1.ResourceClaim
}

// devices has the resource claims of pods, and the devices that drivers offer
// (KEP-4381).
type devices struct {
	claims  map[objectName]*resourcev1.ResourceClaim
	classes map[string]*resourcev1.DeviceClass
	slices  map[string]*resourcev1.ResourceSlice
	rules   map[string]*resourcev1.DeviceTaintRule
	// tainted are the slices with the taints of the rules; a slice that is missing is made
	// when it is needed.
	tainted map[string]*resourcev1.ResourceSlice
	// assumed are the claims whose allocation or reservation is being written, as they
	// will be.
	assumed map[objectName]*assumedClaim
	// released are the claims that pods have given back and no watch shows yet.
	released map[objectName]*resourcev1.ResourceClaim
	// extendedClaims are the names of the claims for extended resources, by their pods.
	extendedClaims map[types.UID]string
	// expressions are the compiled selectors; nil until one is needed.
	expressions *cel.Cache
	// during ends searches for devices.
	during context.Context
}

// assumedClaim is a claim that is being written for a pod.
type assumedClaim struct {
	pod   types.UID
	claim *resourcev1.ResourceClaim
	// group is the PodGroup of the pod, if it has one: others of it share the claim.
	group types.NamespacedName
	// written is the resource version of the claim since which a watch shows the write;
	// empty while there is no response.
	written string
}

func newDevices() devices {
	return devices{
		claims:  map[objectName]*resourcev1.ResourceClaim{},
		classes: map[string]*resourcev1.DeviceClass{},
		slices:  map[string]*resourcev1.ResourceSlice{},
		rules:   map[string]*resourcev1.DeviceTaintRule{},
		tainted: map[string]*resourcev1.ResourceSlice{},
		assumed: map[objectName]*assumedClaim{},

		released:       map[objectName]*resourcev1.ResourceClaim{},
		extendedClaims: map[types.UID]string{},

		during: context.Background(),
	}
}

// SetResourceClaim adds a resource claim, or replaces it, unless its pod has given back a later
// version.
func (s *Snapshot) SetResourceClaim(claim *resourcev1.ResourceClaim) {
	name := objectName{claim.Namespace, claim.Name}
	if released := s.devices.released[name]; released != nil && released.UID == claim.UID && isLate(claim, released) {
		return
	}
	delete(s.devices.released, name)
	s.devices.claims[name] = claim
	if pod := devicesapi.ExtendedClaimOf(claim); pod != "" {
		s.devices.extendedClaims[pod] = claim.Name
	}
	if a := s.devices.assumed[name]; a != nil && (a.claim.UID != "" && a.claim.UID != claim.UID || a.shownBy(claim)) {
		delete(s.devices.assumed, name)
	}
}

// shownBy reports whether a claim of a watch, nil if it shows none, has the write, or a later
// one.
func (a *assumedClaim) shownBy(claim *resourcev1.ResourceClaim) bool {
	if claim == nil {
		return false
	}
	if devicesapi.IsReservedFor(claim, a.pod) {
		return true
	}
	if a.written == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, a.written)
	return err != nil || order >= 0
}

// RemoveResourceClaim removes a resource claim.
func (s *Snapshot) RemoveResourceClaim(namespace, name string) {
	key := objectName{namespace, name}
	if claim := s.devices.claims[key]; claim != nil {
		if pod := devicesapi.ExtendedClaimOf(claim); s.devices.extendedClaims[pod] == name {
			delete(s.devices.extendedClaims, pod)
		}
	}
	delete(s.devices.claims, key)
	delete(s.devices.assumed, key)
	delete(s.devices.released, key)
}

// SetDeviceClass adds a device class, or replaces it.
func (s *Snapshot) SetDeviceClass(class *resourcev1.DeviceClass) {
	s.devices.classes[class.Name] = class
}

// RemoveDeviceClass removes a device class.
func (s *Snapshot) RemoveDeviceClass(name string) { delete(s.devices.classes, name) }

// SetResourceSlice adds the devices of a slice, or replaces them.
func (s *Snapshot) SetResourceSlice(slice *resourcev1.ResourceSlice) {
	s.devices.slices[slice.Name] = slice
	delete(s.devices.tainted, slice.Name)
}

// RemoveResourceSlice removes the devices of a slice.
func (s *Snapshot) RemoveResourceSlice(name string) {
	delete(s.devices.slices, name)
	delete(s.devices.tainted, name)
}

// SetDeviceTaintRule adds a rule that taints devices, or replaces it.
func (s *Snapshot) SetDeviceTaintRule(rule *resourcev1.DeviceTaintRule) {
	s.devices.rules[rule.Name] = rule
	clear(s.devices.tainted)
}

// RemoveDeviceTaintRule removes a rule and its taints.
func (s *Snapshot) RemoveDeviceTaintRule(name string) {
	delete(s.devices.rules, name)
	clear(s.devices.tainted)
}

// AssumeDevices takes the claims of a decision for allocated to a pod and reserved for it.
func (s *Snapshot) AssumeDevices(pod *corev1.Pod, decisions []DeviceDecision) {
	for _, d := range decisions {
		name := objectName{pod.Namespace, d.Claim}
		claim := cmp.Or(s.devices.claims[name], d.Create).DeepCopy()
		d.ApplyTo(claim, pod)
		group, _ := s.groupOf(pod)
		s.devices.assumed[name] = &assumedClaim{pod: pod.UID, claim: claim, group: group}
	}
}

// ApplyTo changes a claim as the decision says. The claim shares nothing with it.
func (d DeviceDecision) ApplyTo(claim *resourcev1.ResourceClaim, pod *corev1.Pod) {
	if d.Allocation != nil {
		claim.Status.Allocation = d.Allocation.DeepCopy()
	}
	if !devicesapi.IsReservedFor(claim, pod.UID) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, devicesapi.Consumer(pod))
	}
}

// DevicesWritten records that a claim has been written, with its resource version: it is
// assumed until a watch shows it, whatever becomes of the pod.
func (s *Snapshot) DevicesWritten(namespace, name, resourceVersion string) {
	if a := s.devices.assumed[objectName{namespace, name}]; a != nil {
		if a.written = resourceVersion; a.shownBy(s.devices.claims[objectName{namespace, name}]) {
			delete(s.devices.assumed, objectName{namespace, name})
		}
	}
}

// ForgetDevices ends the assumptions for a pod that have not been written, and reports
// whether there were any.
func (s *Snapshot) ForgetDevices(pod types.UID) bool {
	forgotten := false
	for name, a := range s.devices.assumed {
		if a.pod == pod && a.written == "" {
			delete(s.devices.assumed, name)
			forgotten = true
		}
	}
	return forgotten
}

// devicesRequest is what a pod needs of devices.
type devicesRequest struct {
	// reserve are the allocated claims that are not reserved for the pod yet, and
	// allocate those that are not allocated.
	reserve, allocate []*resourcev1.ResourceClaim
	// rewrite are the decisions about the pod that were made before and may not have been
	// written yet.
	rewrite []DeviceDecision
	// reach are the selectors of the nodes on which allocated claims can be used, with
	// these claims.
	reach []reachedClaim
	// shares is set if a claim is being allocated for another pod of the same group.
	shares bool
	// wait is the allocated claim that was allocated first of those whose devices are not
	// ready; nil if all are.
	wait *DeviceWait
	// extended is nil if the pod has no extended resources that device classes offer.
	extended *extendedRequest
	// allocator is nil if there is nothing to allocate.
	allocator structured.Allocator
	// placed are the results of place by node.
	placed map[*node]placement
	// allocated are the allocated claims.
	allocated []*resourcev1.ResourceClaim
	// aborted is why a search for devices had no result.
	aborted error
	// limit is how long the search for a node may take; zero means without a limit.
	limit time.Duration
	// devices and counts are what scores of extended resources read; see countOf.
	devices *devices
	counts  map[string]*deviceCounts
}

// placement is what to write for a pod to run on a node, or why its claims cannot be
// allocated there.
type placement struct {
	decisions []DeviceDecision
	err       error
}

// reachedClaim is a claim with the selector of the nodes on which it can be used; nil selects
// none.
type reachedClaim struct {
	claim    *resourcev1.ResourceClaim
	selector *nodeaffinity.NodeSelector
	// missed is whether a node was rejected because of it.
	missed bool
}

func (r reachedClaim) reaches(n *node) bool { return r.selector != nil && r.selector.Match(n.object) }

// allocatesDevices rejects nodes on which the pod's resource claims cannot be used or
// allocated.
func allocatesDevices(s *Snapshot, r *request) rule {
	if r.devices == nil { // with nominated pods, the rules are made several times
		var extended *extendedRequest
		if r.profile.ExtendedResources {
			extended = s.devices.extended(r.pod, r.classes)
		}
		if len(r.pod.Spec.ResourceClaims) == 0 && extended == nil {
			return rule{}
		}
		var err error
		if r.devices, err = s.devices.request(r.pod, extended, r.profile); err != nil {
			return rule{podReason: err.Error()}
		}
	}
	need := r.devices
	return rule{check: func(n *node, why []string) []string {
		// First, as no allocated claim is to be released for a node where others cannot be allocated.
		if _, err := need.place(n); err != nil {
			return append(why, err.Error())
		}
		if !need.reaches(n) {
			why = append(why, "resourceclaim not available on the node")
		}
		return why
	}}
}

// request returns what a pod needs, for its claims and its extended resources, if any. The
// error is the reason why it fits no node.
func (d *devices) request(pod *corev1.Pod, extended *extendedRequest, profile *Profile) (*devicesRequest, error) {
	need := &devicesRequest{extended: extended, devices: d, placed: map[*node]placement{}, limit: ptr.Deref(profile.DeviceSearchTimeout, 0)}
	bindingConditions := profile.DeviceBindTimeout > 0
	for i := range pod.Spec.ResourceClaims {
		claim, err := d.usable(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case err != nil:
			return nil, err
		case claim == nil:
		case claim.Status.Allocation == nil:
			if err := d.haveClasses(claim); err != nil {
				return nil, err
			}
			need.allocate = append(need.allocate, claim)
		default:
			if err := d.useAllocated(need, claim, pod.UID, bindingConditions); err != nil {
				return nil, err
			}
		}
	}
	if extended != nil && extended.made != nil {
		switch claim := extended.made; {
		case claim.DeletionTimestamp != nil:
			return nil, beingDeleted(claim.Name)
		case claim.Status.Allocation != nil:
			if err := d.useAllocated(need, claim, pod.UID, bindingConditions); err != nil {
				return nil, err
			}
		}
	}
	if len(need.allocate) == 0 && extended == nil {
		return need, nil
	}
	var err error
	need.allocator, err = d.allocator(profile)
	return need, err
}

// useAllocated adds an allocated claim to what a pod needs, with the binding conditions of its
// devices if the pod waits for them. The error is the reason why the pod cannot use it.
func (d *devices) useAllocated(need *devicesRequest, claim *resourcev1.ResourceClaim, pod types.UID, bindingConditions bool) error {
	if err := d.use(need, claim, pod); err != nil {
		return err
	}
	if bindingConditions {
		need.await(claim)
	}
	return nil
}

func (d *devices) use(need *devicesRequest, claim *resourcev1.ResourceClaim, pod types.UID) error {
	need.allocated = append(need.allocated, claim)
	name := objectName{claim.Namespace, claim.Name}
	switch a := d.assumed[name]; {
	case a != nil && a.pod != pod:
		need.shares = true // it is reserved when it has been written
	case a != nil && a.written == "":
		decision := DeviceDecision{Claim: claim.Name}
		shown := d.claims[name]
		if shown == nil {
			decision.Create = claim.DeepCopy()
			decision.Create.Status = resourcev1.ResourceClaimStatus{}
		}
		if shown == nil || shown.Status.Allocation == nil {
			decision.Allocation = claim.Status.Allocation
		}
		need.rewrite = append(need.rewrite, decision)
	case devicesapi.IsReservedFor(claim, pod):
	case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize:
		return fmt.Errorf("resourceclaim %q is in use by the maximum number of pods", claim.Name)
	default:
		need.reserve = append(need.reserve, claim)
	}
	nodes := claim.Status.Allocation.NodeSelector
	if nodes == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(nodes)
	if err != nil {
		return fmt.Errorf("resourceclaim %q: %w", claim.Name, err)
	}
	need.reach = append(need.reach, reachedClaim{claim: claim, selector: selector})
	return nil
}

// sharedWith reports whether a pod belongs to the group for which a claim is being allocated.
func (a *assumedClaim) sharedWith(pod *corev1.Pod) bool {
	group := pod.Spec.SchedulingGroup
	return group != nil && group.PodGroupName != nil && a.group == types.NamespacedName{Namespace: pod.Namespace, Name: *group.PodGroupName}
}

// usable returns the claim of a pod's claim; nil if it needs none.
func (d *devices) usable(pod *corev1.Pod, podClaim *corev1.PodResourceClaim) (*resourcev1.ResourceClaim, error) {
	name, mustCheckOwner, err := resourceclaim.Name(pod, podClaim)
	switch {
	case errors.Is(err, resourceclaim.ErrClaimNotFound):
		return nil, fmt.Errorf("waiting for the resource claim of %q to be made from its template", podClaim.Name)
	case err != nil:
		return nil, err
	case name == nil:
		return nil, nil
	}
	key := objectName{pod.Namespace, *name}
	claim := d.claims[key]
	switch a := d.assumed[key]; {
	case claim == nil:
		return nil, fmt.Errorf("resourceclaim %q not found", *name)
	case claim.DeletionTimestamp != nil:
		return nil, beingDeleted(*name)
	case a != nil && a.pod != pod.UID && !a.sharedWith(pod):
		return nil, fmt.Errorf("resourceclaim %q is being allocated for another pod", *name)
	case a != nil:
		claim = a.claim
	}
	if mustCheckOwner {
		return claim, resourceclaim.IsForPod(pod, claim, false)
	}
	return claim, nil
}

func beingDeleted(claim string) error { return fmt.Errorf("resourceclaim %q is being deleted", claim) }

// haveClasses checks that the device classes of a claim exist.
func (d *devices) haveClasses(claim *resourcev1.ResourceClaim) error {
	for _, r := range claim.Spec.Devices.Requests {
		var names []string
		if r.Exactly != nil {
			names = append(names, r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			names = append(names, sub.DeviceClassName)
		}
		for _, name := range names {
			if d.classes[name] == nil {
				return fmt.Errorf("request %s of resourceclaim %q: device class %s does not exist", r.Name, claim.Name, name)
			}
		}
	}
	return nil
}

// reaches reports whether all allocated claims can be used on a node, and records those that
// cannot.
func (need *devicesRequest) reaches(n *node) bool {
	reaches := need.extended == nil || need.extended.usable(n)
	for i := range need.reach {
		if r := &need.reach[i]; !r.reaches(n) {
			r.missed, reaches = true, false
		}
	}
	return reaches
}

// place returns what to write for the pod to run on a node, or why its claims cannot be
// allocated there.
func (need *devicesRequest) place(n *node) ([]DeviceDecision, error) {
	if need == nil {
		return nil, nil
	}
	p, ok := need.placed[n]
	if !ok {
		p.decisions, p.err = need.allocateOn(n)
		need.placed[n] = p
	}
	return p.decisions, p.err
}

func (need *devicesRequest) allocateOn(n *node) ([]DeviceDecision, error) {
	decisions := slices.Clone(need.rewrite)
	for _, claim := range need.reserve {
		decisions = append(decisions, DeviceDecision{Claim: claim.Name})
	}
	allocate := need.allocate
	if need.extended != nil {
		if claim := need.extended.toAllocate(n); claim != nil {
			allocate = append(slices.Clip(allocate), claim)
		}
	}
	if len(allocate) == 0 {
		return decisions, nil
	}
	results, err := need.search(n, allocate)
	switch {
	case err != nil:
		return nil, err
	case len(results) != len(allocate):
		return nil, errors.New("cannot allocate all claims")
	}
	for i, claim := range allocate {
		d := DeviceDecision{Claim: claim.Name, Allocation: &results[i]}
		if i == len(need.allocate) && claim != need.extended.made {
			d.Create = claim
		}
		decisions = append(decisions, d)
	}
	return decisions, nil
}
