package attachdetach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// watches maps events to the names of nodes.
type watches struct {
	cache client.Reader
}

// handler enqueues the nodes of both states of an object.
func (watches) handler(nodes func(context.Context, client.Object) []string) handler.TypedEventHandler[client.Object, string] {
	enqueue := func(ctx context.Context, q controller.Queue[string], objects ...client.Object) {
		for _, obj := range objects {
			for _, node := range nodes(ctx, obj) {
				q.Add(node)
			}
		}
	}
	return handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(ctx context.Context, e ctrlevent.CreateEvent, q controller.Queue[string]) {
			enqueue(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e ctrlevent.UpdateEvent, q controller.Queue[string]) {
			enqueue(ctx, q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e ctrlevent.DeleteEvent, q controller.Queue[string]) {
			enqueue(ctx, q, e.Object)
		},
	}
}

func (watches) ofNode(_ context.Context, obj client.Object) []string { return []string{obj.GetName()} }

func (watches) ofPod(_ context.Context, obj client.Object) []string {
	pod := obj.(*corev1.Pod)
	if pod.Spec.NodeName == "" {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if claimOf(pod, &pod.Spec.Volumes[i]) != "" {
			return []string{pod.Spec.NodeName}
		}
	}
	return nil
}

func (w watches) ofClaim(ctx context.Context, obj client.Object) []string {
	return w.users(ctx, obj.GetNamespace(), obj.GetName())
}

// ofVolume returns the nodes of the pods that use the claim of a volume, or of another
// volume of the same handle, and of their attachments.
func (w watches) ofVolume(ctx context.Context, obj client.Object) []string {
	pv := obj.(*corev1.PersistentVolume)
	if pv.Spec.CSI == nil {
		return nil
	}
	var same corev1.PersistentVolumeList
	if err := w.cache.List(ctx, &same, client.MatchingFields{volumesByHandle().Name: string(uniqueName(pv))}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	all := []*corev1.PersistentVolume{pv} // the cache does not have it any more if it was deleted
	for i := range same.Items {
		if same.Items[i].Name != pv.Name {
			all = append(all, &same.Items[i])
		}
	}
	var nodes []string
	for _, pv := range all {
		if ref := pv.Spec.ClaimRef; ref != nil {
			nodes = append(nodes, w.users(ctx, ref.Namespace, ref.Name)...)
		}
		var list storagev1.VolumeAttachmentList
		if err := w.cache.List(ctx, &list, client.MatchingFields{attachmentsByVolume().Name: pv.Name}, client.UnsafeDisableDeepCopy); err != nil {
			return nodes // the manager stops
		}
		for i := range list.Items {
			nodes = append(nodes, list.Items[i].Spec.NodeName)
		}
	}
	return nodes
}

// ofAttachment returns its node and those that wait for the volume.
func (w watches) ofAttachment(ctx context.Context, obj client.Object) []string {
	a := obj.(*storagev1.VolumeAttachment)
	nodes := []string{a.Spec.NodeName}
	if a.Spec.Source.PersistentVolumeName == nil {
		return nodes
	}
	pv := &corev1.PersistentVolume{}
	if err := w.cache.Get(ctx, client.ObjectKey{Name: *a.Spec.Source.PersistentVolumeName}, pv, client.UnsafeDisableDeepCopy); err == nil {
		nodes = append(nodes, w.ofVolume(ctx, pv)...)
		if pv.Spec.CSI != nil && a.Name == attachmentName(pv, a.Spec.NodeName) {
			return nodes
		}
	}
	// The PersistentVolume was deleted, or is another one of its name.
	return append(nodes, w.ofDriverVolumes(ctx, a.Spec.Attacher, func(pv *corev1.PersistentVolume) bool {
		return a.Name == attachmentName(pv, a.Spec.NodeName)
	})...)
}

// ofDriver returns the nodes of the pods that use volumes of a driver.
func (w watches) ofDriver(ctx context.Context, obj client.Object) []string {
	return w.ofDriverVolumes(ctx, obj.GetName(), func(*corev1.PersistentVolume) bool { return true })
}

// ofDriverVolumes returns the nodes of the pods that use those volumes of a driver which of
// selects.
func (w watches) ofDriverVolumes(ctx context.Context, driver string, of func(*corev1.PersistentVolume) bool) []string {
	var list corev1.PersistentVolumeList
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	var nodes []string
	for i := range list.Items {
		if csi := list.Items[i].Spec.CSI; csi != nil && csi.Driver == driver && of(&list.Items[i]) {
			nodes = append(nodes, w.ofVolume(ctx, &list.Items[i])...)
		}
	}
	return nodes
}

// users returns the nodes of the pods that use a claim.
func (w watches) users(ctx context.Context, namespace, claim string) []string {
	var list corev1.PodList
	if err := w.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index.PodsByClaim().Name: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	var nodes []string
	for i := range list.Items {
		if node := list.Items[i].Spec.NodeName; node != "" {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
