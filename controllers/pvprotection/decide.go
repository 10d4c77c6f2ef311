package pvprotection

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// finalizer protects volumes from deletion.
const finalizer = "kubernetes.io/pv-protection"

// action is what to do with a volume's finalizer.
type action int

const (
	keep action = iota
	add
	remove
)

// decide returns what to do with the volume's finalizer: a volume has it until
// it is being deleted and not bound.
func decide(pv *corev1.PersistentVolume) action {
	has := controllerutil.ContainsFinalizer(pv, finalizer)
	switch {
	case pv.DeletionTimestamp == nil && !has:
		return add
	case pv.DeletionTimestamp != nil && has && pv.Status.Phase != corev1.VolumeBound:
		return remove
	default:
		return keep
	}
}
