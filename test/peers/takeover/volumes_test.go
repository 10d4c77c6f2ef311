package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// driver is a CSI driver whose volumes are attached, and the class that of its volumes.
	driver      = "csi.example.com"
	driverClass = "csi"
	// movable is a volume whose pod is on another node in each round.
	movable = "movable"
	// movableName is its name in the status of nodes.
	movableName = "kubernetes.io/csi/" + driver + "^" + movable
)

// managed lets the controller manager attach the volumes of a node.
func managed(node *corev1.Node) {
	node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
}

// mover is the pod of a round with the movable volume, home its node, and grown the claim
// that is created in the round and expanded in the next one. speed is a class of the
// attributes of volumes, which is deleted in the next round.
func mover(round int) string { return fmt.Sprintf("mover-%d", round) }
func home(round int) string  { return fmt.Sprintf("node-%d", round%2) }
func grown(round int) string { return fmt.Sprintf("grown-%d", round) }
func speed(round int) string { return fmt.Sprintf("speed-%d", round) }

// beginVolumes creates the driver and the movable volume.
func (w *work) beginVolumes(ctx context.Context) error {
	var create metav1.CreateOptions
	if _, err := w.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: meta(driver), Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)}}, create); err != nil {
		return err
	}
	if _, err := w.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: meta(driverClass), Provisioner: driver, AllowVolumeExpansion: ptr.To(true)}, create); err != nil {
		return err
	}
	return w.createVolume(ctx, movable)
}

// createVolume creates a volume of the driver, with a claim of the same name.
func (w *work) createVolume(ctx context.Context, name string) error {
	var create metav1.CreateOptions
	amount := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if _, err := w.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeSpec{
		Capacity: amount, AccessModes: modes, StorageClassName: driverClass, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Namespace: place, Name: name},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}},
	}}, create); err != nil {
		return err
	}
	_, err := w.client.CoreV1().PersistentVolumeClaims(place).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: ptr.To(driverClass), VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: amount},
	}}, create)
	return err
}

// changeMoves moves the movable volume, expands a claim, and replaces the class of attributes.
func (w *work) changeMoves(ctx context.Context) error {
	var create metav1.CreateOptions
	pod := &corev1.Pod{ObjectMeta: meta(mover(w.round)), Spec: template("mover", w.round).Spec}
	pod.Spec.NodeName = home(w.round)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: movable}}}}
	if _, err := w.client.CoreV1().Pods(place).Create(ctx, pod, create); err != nil {
		return err
	}
	if err := w.createVolume(ctx, grown(w.round)); err != nil {
		return err
	}
	classes := w.client.StorageV1().VolumeAttributesClasses()
	if _, err := classes.Create(ctx, &storagev1.VolumeAttributesClass{ObjectMeta: meta(speed(w.round)), DriverName: driver, Parameters: map[string]string{"iops": "1"}}, create); err != nil {
		return err
	}
	if w.round == 1 {
		return nil
	}
	if err := w.client.CoreV1().Pods(place).Delete(ctx, mover(w.round-1), metav1.DeleteOptions{}); err != nil {
		return err
	}
	larger := []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	if _, err := w.client.CoreV1().PersistentVolumeClaims(place).Patch(ctx, grown(w.round-1), types.MergePatchType, larger, metav1.PatchOptions{}); err != nil {
		return err
	}
	return classes.Delete(ctx, speed(w.round-1), metav1.DeleteOptions{})
}

// moved attaches what is to be attached, as the driver does, and checks that the movable
// volume is attached to its node alone.
func (w *work) moved(ctx context.Context) error {
	if w.round == 0 {
		return nil
	}
	list, err := w.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var nodes []string
	for i := range list.Items {
		a := &list.Items[i]
		nodes = append(nodes, a.Spec.NodeName)
		if a.Status.Attached || a.DeletionTimestamp != nil {
			continue
		}
		a.Status.Attached = true
		if _, err := w.client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if len(nodes) != 1 || nodes[0] != home(w.round) {
		return fmt.Errorf("the volume is attached to %v, want %s", nodes, home(w.round))
	}
	for round, want := range map[int]bool{w.round: true, w.round - 1: false} {
		node, err := w.client.CoreV1().Nodes().Get(ctx, home(round), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == movableName }); got != want {
			return fmt.Errorf("the status of %s has the volume: %v, want %v", node.Name, got, want)
		}
	}
	return w.expanded(ctx)
}

// expanded checks the claims and the classes of attributes.
func (w *work) expanded(ctx context.Context) error {
	claim, err := w.client.CoreV1().PersistentVolumeClaims(place).Get(ctx, grown(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("the claim %s is %s", claim.Name, claim.Status.Phase)
	}
	class, err := w.client.StorageV1().VolumeAttributesClasses().Get(ctx, speed(w.round), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(class.Finalizers) != 1 {
		return fmt.Errorf("the class of attributes has the finalizers %v, want one", class.Finalizers)
	}
	if w.round == 1 {
		return nil
	}
	events, err := w.client.CoreV1().Events(place).List(ctx, metav1.ListOptions{FieldSelector: "reason=ExternalExpanding,involvedObject.name=" + grown(w.round-1)})
	if err != nil {
		return err
	}
	if len(events.Items) == 0 {
		return fmt.Errorf("the claim %s has no event about its expansion", grown(w.round-1))
	}
	switch _, err := w.client.StorageV1().VolumeAttributesClasses().Get(ctx, speed(w.round-1), metav1.GetOptions{}); {
	case err == nil:
		return errors.New("the deleted class of attributes is there")
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}
