package resize

import (
	"maps"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/checkpoint"
)

// The checkpoint, which kubelet names so, too.
const (
	checkpointName    = "allocated_pods_state"
	checkpointVersion = 1
)

// Allocations are the CPU and memory allocated to pods. They survive a restart of
// the agent.
type Allocations struct {
	file checkpoint.File

	mu   sync.Mutex
	pods map[types.UID]allocation
}

// allocation is what one pod has.
type allocation struct {
	// Pod are the resources of the pod as a whole, Containers those by container.
	Pod        *corev1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]corev1.ResourceRequirements `json:"containers"`
	// Resized reports that the pod had others when it was admitted.
	Resized bool `json:"resized,omitempty"`
}

// Load returns the allocations that an earlier agent has saved in the directory.
func Load(dir string) (*Allocations, error) {
	a := &Allocations{file: checkpoint.File{Path: filepath.Join(dir, checkpointName), Version: checkpointVersion}, pods: map[types.UID]allocation{}}
	_, err := a.file.Load(&a.pods)
	return a, err
}

// Set records that the node has allocated what a pod's object asks for.
func (a *Allocations) Set(p *corev1.Pod) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, known := a.pods[p.UID]
	next := allocationOf(p)
	next.Resized = known && (before.Resized || !apiequality.Semantic.DeepEqual(before, next))
	if known && apiequality.Semantic.DeepEqual(before, next) {
		return nil
	}
	a.pods[p.UID] = next
	err := a.file.Save(a.pods)
	switch {
	case err == nil:
	case known:
		a.pods[p.UID] = before
	default:
		delete(a.pods, p.UID)
	}
	return err
}

// Of returns a pod with what has been allocated to it: the pod itself if that is what
// it asks for, or if nothing is known about it. resized reports whether the pod had
// other resources when it was admitted.
func (a *Allocations) Of(p *corev1.Pod) (allocated *corev1.Pod, resized bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has, known := a.pods[p.UID]
	asks := allocationOf(p)
	asks.Resized = has.Resized
	if !known || apiequality.Semantic.DeepEqual(has, asks) {
		return p, has.Resized
	}
	allocated = p.DeepCopy()
	if allocated.Spec.Resources != nil && has.Pod != nil {
		setCompute(allocated.Spec.Resources, *has.Pod)
	}
	for _, c := range podspec.NonEphemeral(&allocated.Spec) {
		if r, ok := has.Containers[c.Name]; ok {
			setCompute(&c.Resources, r)
		}
	}
	return allocated, has.Resized
}

// Retain forgets all pods other than these. It must not be called before all sources
// of pods have delivered them.
func (a *Allocations) Retain(active []*corev1.Pod) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := map[types.UID]bool{}
	for _, p := range active {
		keep[p.UID] = true
	}
	count := len(a.pods)
	maps.DeleteFunc(a.pods, func(uid types.UID, _ allocation) bool { return !keep[uid] })
	if len(a.pods) == count {
		return nil
	}
	return a.file.Save(a.pods)
}

// allocationOf returns what a pod's object asks for.
func allocationOf(p *corev1.Pod) allocation {
	a := allocation{Containers: map[string]corev1.ResourceRequirements{}}
	if p.Spec.Resources != nil {
		r := compute(*p.Spec.Resources)
		a.Pod = &r
	}
	for _, c := range podspec.NonEphemeral(&p.Spec) {
		a.Containers[c.Name] = compute(c.Resources)
	}
	return a
}

// resizable are the resources that change in place.
func resizable() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// compute returns the CPU and memory of resources.
func compute(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	only := func(list corev1.ResourceList) corev1.ResourceList {
		var some corev1.ResourceList
		for _, name := range resizable() {
			if q, ok := list[name]; ok {
				if some == nil {
					some = corev1.ResourceList{}
				}
				some[name] = q
			}
		}
		return some
	}
	return corev1.ResourceRequirements{Limits: only(r.Limits), Requests: only(r.Requests)}
}

// setCompute sets the CPU and memory of resources to those of others.
func setCompute(r *corev1.ResourceRequirements, to corev1.ResourceRequirements) {
	set := func(list *corev1.ResourceList, to corev1.ResourceList) {
		for _, name := range resizable() {
			delete(*list, name)
			if q, ok := to[name]; ok {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)[name] = q
			}
		}
	}
	set(&r.Limits, to.Limits)
	set(&r.Requests, to.Requests)
}
