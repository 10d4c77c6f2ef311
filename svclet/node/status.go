package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
)

// describe returns the Node with its current status.
func (n *Node) describe(ctx context.Context, base *corev1.Node) *corev1.Node {
	node := &corev1.Node{ObjectMeta: base.ObjectMeta, Spec: base.Spec, Status: *base.Status.DeepCopy()}
	health := n.runtime.update(ctx, &n.o)
	// Addresses that a cloud controller manager has written are its own.
	if !n.o.ExternalCloud || len(node.Status.Addresses) == 0 {
		if addresses := n.addresses.update(ctx, &n.o); addresses != nil {
			node.Status.Addresses = addresses
		}
	}
	n.recordReboot(node.Status.NodeInfo.BootID)
	node.Status.Capacity = capacity(&n.o, node.Status.Capacity)
	node.Status.Allocatable = allocatable(node.Status.Capacity, n.o.Reserved)
	n.addDevices(&node.Status)
	node.Status.NodeInfo = n.info(health)
	node.Status.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.o.Port}}
	if node.Status.VolumesInUse = nil; n.o.VolumesInUse != nil {
		node.Status.VolumesInUse = n.o.VolumesInUse()
	}
	node.Status.Images = n.images.update(ctx, &n.o)
	node.Status.RuntimeHandlers = handlers(health.status)
	node.Status.DeclaredFeatures = n.o.Features
	node.Status.Features = nil
	if f := health.status.Features; f != nil {
		node.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(f.GetSupplementalGroupsPolicy())}
	}
	for _, reason := range n.setConditions(&node.Status, health.problems) {
		n.statusEvent(reason)
	}
	n.recordSchedulable(base.Spec.Unschedulable)
	return node
}

// addDevices adds what device plugins offer to the capacity.
func (n *Node) addDevices(s *corev1.NodeStatus) {
	if n.resets() {
		for _, list := range []corev1.ResourceList{s.Capacity, s.Allocatable} {
			for name := range list {
				if podspec.IsExtendedResource(name) {
					list[name] = resource.Quantity{Format: resource.DecimalSI}
				}
			}
		}
	}
	if n.o.Devices == nil {
		return
	}
	capacity, allocatable, removed := n.o.Devices()
	maps.Copy(s.Capacity, capacity)
	maps.Copy(s.Allocatable, allocatable)
	for _, name := range removed {
		delete(s.Capacity, name)
		delete(s.Allocatable, name)
	}
}

// resets reports whether extended resources are to be reset.
func (n *Node) resets() bool { return n.o.Unreset != nil && n.o.Unreset() }

// recordReboot records an event, once, if the machine has rebooted since the last
// status.
func (n *Node) recordReboot(bootID string) {
	if now := n.o.Machine.BootID; bootID != "" && bootID != now && !n.rebooted {
		n.rebooted = true
		n.event(corev1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", n.o.Name, now))
	}
}

func (n *Node) recordSchedulable(off bool) {
	if off == n.wasOff {
		return
	}
	if n.wasOff = off; off {
		n.statusEvent("NodeNotSchedulable")
	} else {
		n.statusEvent("NodeSchedulable")
	}
}

func (n *Node) info(health health) corev1.NodeSystemInfo {
	m := &n.o.Machine
	info := corev1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: m.BootID,
		KernelVersion: m.KernelVersion, OSImage: m.OSImage,
		OperatingSystem: goruntime.GOOS, Architecture: goruntime.GOARCH,
		KubeletVersion:          n.o.Version,
		ContainerRuntimeVersion: cmp.Or(health.status.Name, "unknown") + "://" + cmp.Or(health.status.Version, "Unknown"),
	}
	if m.Swap > 0 {
		info.Swap = &corev1.NodeSwapStatus{Capacity: ptr.To(m.Swap)}
	}
	return info
}

// capacity returns the machine's capacity, with extended resources that other
// writers have set.
func capacity(o *Options, before corev1.ResourceList) corev1.ResourceList {
	m := &o.Machine
	all := corev1.ResourceList{}
	for name, q := range before {
		if !isHugePage(name) {
			all[name] = q
		}
	}
	all[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(m.CPUs)*1000, resource.DecimalSI)
	all[corev1.ResourceMemory] = *resource.NewQuantity(m.Memory, resource.BinarySI)
	if delete(all, corev1.ResourceEphemeralStorage); m.Storage > 0 {
		all[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(m.Storage, resource.BinarySI)
	}
	for size, count := range m.HugePages {
		all[hugePage(size)] = *resource.NewQuantity(size*count, resource.BinarySI)
	}
	pods := int64(o.MaxPods)
	if o.PodsPerCore > 0 {
		pods = min(pods, int64(m.CPUs)*int64(o.PodsPerCore))
	}
	all[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	return all
}

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// hugePage returns the name of the resource for huge pages of this size.
func hugePage(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

// allocatable returns capacity minus reserved resources.
func allocatable(capacity, reserved corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	less := func(q, by resource.Quantity) resource.Quantity {
		q = q.DeepCopy()
		if q.Sub(by); q.Sign() < 0 {
			q.Set(0)
		}
		return q
	}
	for name, q := range capacity {
		all[name] = less(q, reserved[name])
	}
	// Huge pages are not available as ordinary memory.
	for name, q := range capacity {
		if isHugePage(name) {
			all[corev1.ResourceMemory] = less(all[corev1.ResourceMemory], q)
		}
	}
	return all
}

// checkReserved returns an error if more is reserved than the capacity, as kubelet
// does.
func checkReserved(capacity, reserved corev1.ResourceList) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		kept := reserved[name]
		if has, known := capacity[name]; known && kept.Cmp(has) > 0 {
			problems = append(problems, fmt.Errorf("--svc-reserved, --system-reserved and --reserved-cpus keep %s of %s from pods, and the node has %s: reserve less", &kept, name, &has))
		}
	}
	return errors.Join(problems...)
}

// handlers returns the runtime's handlers sorted by name.
func handlers(s RuntimeStatus) []corev1.NodeRuntimeHandler {
	var all []corev1.NodeRuntimeHandler
	for _, h := range s.Handlers {
		all = append(all, corev1.NodeRuntimeHandler{Name: h.GetName(), Features: &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: ptr.To(h.GetFeatures().GetRecursiveReadOnlyMounts()),
			UserNamespaces:          ptr.To(h.GetFeatures().GetUserNamespaces()),
		}})
	}
	slices.SortFunc(all, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// listed are the node's images as last listed.
type listed struct {
	at     time.Time // of the last answer
	images []corev1.ContainerImage
	answer <-chan answeredImages // of the request in flight; nil without one
}

// answeredImages is the answer to a request for the images.
type answeredImages struct {
	images []corev1.ContainerImage
	err    error
}

const (
	imagesFrequency = time.Minute
	// imagesPatience is how long a status waits for a list of images that it has requested: a
	// later one shows those of a slow runtime.
	imagesPatience = time.Second
	// maxImageNames bounds the names of an image in the status.
	maxImageNames = 5
)

// update returns the images, and requests them if they are due. ctx bounds the request, which
// may take longer than this call.
func (l *listed) update(ctx context.Context, o *Options) []corev1.ContainerImage {
	due := l.at.IsZero() || o.Clock.Since(l.at) >= imagesFrequency
	switch {
	case o.Images == nil || o.MaxImages == 0:
	case l.answer == nil && due:
		answer := make(chan answeredImages, 1)
		l.answer = answer
		go func() {
			images, err := o.Images(ctx)
			answer <- answeredImages{images, err}
		}()
		patience, cancel := context.WithTimeout(ctx, imagesPatience)
		defer cancel()
		select {
		case a := <-answer:
			l.receive(ctx, a, o)
		case <-patience.Done():
		}
	default:
		select {
		case a := <-l.answer:
			l.receive(ctx, a, o)
		default:
		}
	}
	return l.images
}

// receive processes the answer to the request in flight. One that failed is repeated by the next
// status.
func (l *listed) receive(ctx context.Context, a answeredImages, o *Options) {
	l.answer = nil
	if a.err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list images for the node status", "err", a.err)
		return
	}
	l.at, l.images = o.Clock.Now(), largest(a.images, o.MaxImages)
}

// largest returns the largest images, with a limited number of names.
func largest(images []corev1.ContainerImage, most int32) []corev1.ContainerImage {
	images = slices.Clone(images)
	slices.SortStableFunc(images, func(a, b corev1.ContainerImage) int { return cmp.Compare(b.SizeBytes, a.SizeBytes) })
	if most >= 0 && len(images) > int(most) {
		images = images[:most]
	}
	for i := range images {
		if names := images[i].Names; len(names) > maxImageNames {
			images[i].Names = names[:maxImageNames]
		}
	}
	return images
}

// statusChanged reports whether two statuses differ in more than heartbeats and
// the order of conditions.
func statusChanged(a, b *corev1.NodeStatus) bool {
	x, y := *a, *b
	x.Conditions, y.Conditions = withoutHeartbeats(a.Conditions), withoutHeartbeats(b.Conditions)
	return !apiequality.Semantic.DeepEqual(&x, &y)
}

func withoutHeartbeats(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		conditions[i].LastHeartbeatTime.Reset()
	}
	slices.SortFunc(conditions, func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) })
	return conditions
}
