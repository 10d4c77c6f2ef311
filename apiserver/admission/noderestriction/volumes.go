package noderestriction

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"svc.dev/svc/apis/localpath"
)

// localVolume returns an error if the node changes more of a volume than the finalizer
// of a directory of its own that is being removed.
func localVolume(node string, changed, old *corev1.PersistentVolume) error {
	if !localpath.Made(old) || old.Labels[localpath.NodeLabel] != node || !localpath.Removable(old) {
		return fmt.Errorf("node %q may only change volumes of the provisioner %s on this node that are being deleted", node, localpath.Provisioner)
	}
	rest := func(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
		pv = pv.DeepCopy()
		pv.ResourceVersion, pv.Generation, pv.ManagedFields = "", 0, nil
		pv.Finalizers = slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == localpath.Finalizer })
		if len(pv.Finalizers) == 0 {
			pv.Finalizers = nil
		}
		return pv
	}
	if !equality.Semantic.DeepEqual(rest(changed), rest(old)) {
		return fmt.Errorf("node %q may only remove the finalizer %s of a volume", node, localpath.Finalizer)
	}
	return nil
}
