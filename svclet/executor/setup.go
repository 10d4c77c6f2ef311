package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/volume"
	"svc.dev/svc/svclet/volumeexpansion"
)

// resources are what SetUp makes for the containers of a pod, and TearDown
// releases.
type resources struct {
	// volumes are replaced, and not changed, under the executor's mutex.
	volumes      map[string]volume.Mounted
	cgroupParent string
	// sized is the pod with the limits that its cgroup has.
	sized *corev1.Pod
	// warnings are the messages of events that have been recorded: each is
	// recorded once.
	warnings map[string]bool
}

// supplementalGroups returns the groups that own the files of the volumes.
func supplementalGroups(volumes map[string]volume.Mounted) []int64 {
	var groups []int64
	for _, v := range volumes {
		if v.Group != nil {
			groups = append(groups, *v.Group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// setUp makes the pod's directories, cgroup and volumes.
func (e *Executor) setUp(ctx context.Context, p *corev1.Pod) pod.Result {
	e.o.Objects.Register(p)
	r := &resources{warnings: map[string]bool{}, sized: p}
	kept, err := e.o.Cgroups.Create(p)
	if err == nil {
		r.cgroupParent, err = e.o.Cgroups.Parent(p)
	}
	if err != nil {
		return failed("FailedCreatePodContainer", fmt.Errorf("unable to ensure pod container exists: %w", err))
	}
	if r.volumes, err = e.o.Volumes.Mount(ctx, p); err != nil {
		return mountResult(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resources[p.UID] = r
	if kept {
		klog.FromContext(ctx).Info("Kept a higher memory limit of a pod that uses more, or whose usage is unknown", "pod", klog.KObj(p))
	}
	return pod.Result{KeptMemory: kept}
}

// mountResult returns the result of a set-up whose volumes could not be mounted.
func mountResult(err error) pod.Result {
	limit := (*csi.LimitError)(nil)
	if !errors.As(err, &limit) {
		return failed("FailedMount", err)
	}
	result := failed("VolumeAttachmentLimitExceeded", limit)
	result.Rejected = true
	return result
}

// tearDown releases what setUp has made.
func (e *Executor) tearDown(ctx context.Context, p *corev1.Pod) pod.Result {
	if e.o.Claims != nil {
		if err := e.o.Claims.Unprepare(ctx, p.UID); err != nil {
			return failed("FailedKillPod", err)
		}
	}
	if err := e.o.Volumes.Unmount(ctx, p.UID); err != nil {
		return failed("FailedKillPod", err)
	}
	if e.o.Users != nil {
		e.o.Users.Release(p.UID)
	}
	if err := e.o.Cgroups.Remove(ctx, p.UID); err != nil {
		return failed("FailedKillPod", err)
	}
	e.o.Objects.Unregister(p.UID)
	if e.o.Network != nil {
		e.o.Network.Release(p.UID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.resources, p.UID)
	return pod.Result{}
}

// Refresh updates the volumes of a pod that has been set up with the API objects
// and the metadata that they show, and expands those that have grown. A failure is an event of
// the pod, unless ctx is done.
func (e *Executor) Refresh(ctx context.Context, p *corev1.Pod) {
	if _, err := e.resourcesOf(p.UID); err != nil {
		return
	}
	if err := e.o.Volumes.Refresh(ctx, p); err != nil && ctx.Err() == nil {
		e.o.Events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: refreshReason(err), Message: err.Error()})
	}
}

// refreshReason returns the reason of the event about volumes that could not be refreshed.
func refreshReason(err error) string {
	if expansion := (*volumeexpansion.Error)(nil); errors.As(err, &expansion) {
		return "VolumeResizeFailed"
	}
	return "FailedMount"
}

// SetUpPods returns how many pods are set up.
func (e *Executor) SetUpPods() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.resources)
}

// volumesOf returns the volumes of a pod that has been set up.
func (e *Executor) volumesOf(uid types.UID) (map[string]volume.Mounted, error) {
	r, err := e.resourcesOf(uid)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.volumes, nil
}

// resourcesOf returns what setUp has made for a pod.
func (e *Executor) resourcesOf(uid types.UID) (*resources, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.resources[uid]; r != nil {
		return r, nil
	}
	return nil, errors.New("the pod has not been set up")
}

// warn records a warning event about a pod, once per message.
func (e *Executor) warn(p *corev1.Pod, r *resources, reason, message string) {
	e.mu.Lock()
	recorded := r.warnings[message]
	r.warnings[message] = true
	e.mu.Unlock()
	if !recorded {
		e.o.Events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
	}
}
