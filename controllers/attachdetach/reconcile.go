package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

// reconciler reads nodes, pods, claims, volumes, drivers and attachments. It alone
// creates and deletes attachments of volumes, and writes status.volumesAttached of
// nodes. A request is the name of a node.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	now      func() time.Time
	noForce  bool
	unused   *unused

	exclusives *exclusives
}

// Reconcile attaches the volumes of a node's pods, and detaches others.
func (r *reconciler) Reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	s, managed, err := r.state(ctx, name)
	if err != nil || !managed {
		return reconcile.Result{}, err
	}
	r.exclusives.shown(s.attachments)
	p := decide(s)
	r.unused.keep(name, p.unused, s.now)
	for _, e := range p.events {
		r.recorder.Event(e.pod, e.kind, e.reason, e.message)
	}
	if s.node != nil {
		if err := r.report(ctx, s.node, p.attached); err != nil {
			return reconcile.Result{}, err
		}
	}
	var errs []error
	for _, c := range p.create {
		if err := r.create(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("attach volume %s to node %s: %w", c.volume.Name, name, err))
		}
	}
	confirmed, err := r.confirmed(ctx, s, p)
	if err != nil {
		errs = append(errs, err)
	}
	for _, a := range confirmed {
		if err := r.client.Delete(ctx, a, client.Preconditions{UID: &a.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("detach volume %s from node %s: %w", *a.Spec.Source.PersistentVolumeName, name, err))
		}
	}
	return reconcile.Result{RequeueAfter: p.after}, errors.Join(errs...)
}

// confirmed returns the attachments of a plan that are deleted by the node's state at the API
// server, too. The cache may be behind: an agent that mounts a volume reports that it uses it,
// and then reads whether the volume is attached; so the node is read after the volume was
// withdrawn from its status. The event of what the cache lacks causes the next sync.
func (r *reconciler) confirmed(ctx context.Context, s state, p plan) ([]*storagev1.VolumeAttachment, error) {
	if len(p.delete) == 0 {
		return nil, nil
	}
	node := &corev1.Node{}
	err := r.live.Get(ctx, client.ObjectKey{Name: s.name}, node)
	switch {
	case apierrors.IsNotFound(err):
		s.node = nil
	case err != nil:
		return nil, fmt.Errorf("read node %s, whose volumes are detached: %w", s.name, err)
	case !managed(node) || !apiequality.Semantic.DeepEqual(node.Status.VolumesAttached, status(node, p.attached)):
		return nil, nil // another client has changed it
	default:
		s.node = node
	}
	now := decide(s).delete
	return slices.DeleteFunc(slices.Clone(p.delete), func(a *storagev1.VolumeAttachment) bool { return !slices.Contains(now, a) }), nil
}

// state reads what a plan is made from; false if the controller does not attach volumes
// to the node.
func (r *reconciler) state(ctx context.Context, name string) (state, bool, error) {
	s := state{name: name, now: r.now(), noForce: r.noForce, volumes: map[string]*corev1.PersistentVolume{}}
	s.since = r.unused.since(name)
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case err == nil && !managed(node):
		return s, false, nil
	case err == nil:
		s.node = node
	case !apierrors.IsNotFound(err):
		return s, false, err
	}
	if s.attachments, err = r.attachments(ctx, attachmentsByNode().Name, name); err != nil {
		return s, false, err
	}
	for _, a := range s.attachments {
		if a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if err := r.readVolume(ctx, *a.Spec.Source.PersistentVolumeName, s.volumes); err != nil {
			return s, false, err
		}
	}
	if err := r.readWanted(ctx, &s); err != nil {
		return s, false, err
	}
	for i := range s.wanted {
		w := &s.wanted[i]
		mine := attachmentName(w.volume, name)
		if !exclusive(w.volume) || slices.ContainsFunc(s.attachments, func(a *storagev1.VolumeAttachment) bool { return a.Name == mine }) {
			continue
		}
		if w.elsewhere, err = r.elsewhere(ctx, w.volume, name); err != nil {
			return s, false, err
		}
	}
	return s, true, nil
}

// readVolume reads a volume into volumes, unless it does not exist.
func (r *reconciler) readVolume(ctx context.Context, name string, volumes map[string]*corev1.PersistentVolume) error {
	pv := &corev1.PersistentVolume{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, pv, client.UnsafeDisableDeepCopy)
	if err == nil {
		volumes[name] = pv
	}
	return client.IgnoreNotFound(err)
}

// readWanted reads the volumes of the pods of the node that a driver attaches.
func (r *reconciler) readWanted(ctx context.Context, s *state) error {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.MatchingFields{index.PodsByNode().Name: s.name}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	found := map[corev1.UniqueVolumeName]int{}
	for i := range list.Items {
		pod := &list.Items[i]
		if ended(pod) {
			continue
		}
		for j := range pod.Spec.Volumes {
			pv, err := r.volumeOf(ctx, pod, &pod.Spec.Volumes[j])
			if err != nil {
				return err
			}
			if pv == nil {
				continue
			}
			at, ok := found[uniqueName(pv)]
			if !ok {
				at = len(s.wanted)
				found[uniqueName(pv)] = at
				s.wanted = append(s.wanted, wanted{volume: pv})
			}
			s.wanted[at].pods = append(s.wanted[at].pods, pod)
		}
	}
	return nil
}

// volumeOf returns the persistent volume of a pod's volume, nil if it has none that a
// driver attaches.
func (r *reconciler) volumeOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	name := claimOf(pod, v)
	if name == "" {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if claim.Status.Phase != corev1.ClaimBound || v.Ephemeral != nil && ephemeral.VolumeIsForPod(pod, claim) != nil {
		return nil, nil
	}
	pv := &corev1.PersistentVolume{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv, client.UnsafeDisableDeepCopy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID {
		return nil, nil
	}
	driver := &storagev1.CSIDriver{}
	err := r.client.Get(ctx, client.ObjectKey{Name: pv.Spec.CSI.Driver}, driver, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		driver = nil
	}
	if !attachable(pv, driver) {
		return nil, nil
	}
	return pv, nil
}

// elsewhere returns a node other than the given one that a volume is attached to, empty if
// there is none. The attachment may name another PersistentVolume of the same handle, also
// one that does not exist any more: then its name shows the handle.
func (r *reconciler) elsewhere(ctx context.Context, pv *corev1.PersistentVolume, node string) (string, error) {
	var same corev1.PersistentVolumeList
	if err := r.client.List(ctx, &same, client.MatchingFields{volumesByHandle().Name: string(uniqueName(pv))}, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	names := map[string]bool{}
	for i := range same.Items {
		names[same.Items[i].Name] = true
	}
	all, err := r.attachments(ctx, attachmentsByAttacher().Name, pv.Spec.CSI.Driver)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if a.Spec.NodeName == node {
			continue
		}
		if of := a.Spec.Source.PersistentVolumeName; of != nil && names[*of] || a.Name == attachmentName(pv, a.Spec.NodeName) {
			return a.Spec.NodeName, nil
		}
	}
	return "", nil
}

func (r *reconciler) attachments(ctx context.Context, index, value string) ([]*storagev1.VolumeAttachment, error) {
	var list storagev1.VolumeAttachmentList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	all := make([]*storagev1.VolumeAttachment, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// report writes the attached volumes into the status of a node.
func (r *reconciler) report(ctx context.Context, node *corev1.Node, attached []corev1.AttachedVolume) error {
	all := status(node, attached)
	if apiequality.Semantic.DeepEqual(node.Status.VolumesAttached, all) {
		return nil
	}
	before := node.DeepCopy()
	node.Status.VolumesAttached = all
	if err := r.client.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("attached volumes of node %s: %w", node.Name, err))
	}
	return nil
}

// unused remembers since when no pod wants the attachments that nodes still use.
type unused struct {
	mu    sync.Mutex
	times map[string]map[string]time.Time
}

func newUnused() *unused { return &unused{times: map[string]map[string]time.Time{}} }

// since returns the times of a node's attachments.
func (u *unused) since(node string) map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.times[node]
}

// keep replaces the attachments of a node; known ones keep their time.
func (u *unused) keep(node string, attachments []string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(attachments) == 0 {
		delete(u.times, node)
		return
	}
	times := map[string]time.Time{}
	for _, name := range attachments {
		times[name] = now
		if since, ok := u.times[node][name]; ok {
			times[name] = since
		}
	}
	u.times[node] = times
}
