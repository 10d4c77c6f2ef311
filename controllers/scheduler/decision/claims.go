package decision

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
)

// storage has the claims, volumes and storage classes.
type storage struct {
	claims  map[objectName]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	// byClass are the volumes sorted by name, including those reserved for a claim,
	// which can use them.
	byClass map[string][]*corev1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	limits  volumeLimits
	// users are the numbers of pods that have a node by claim.
	users      map[objectName]int
	capacities capacities
	assumed    assumedBindings
}

// objectName is a name in a namespace.
type objectName struct{ namespace, name string }

func newStorage() storage {
	return storage{
		claims:  map[objectName]*corev1.PersistentVolumeClaim{},
		volumes: map[string]*corev1.PersistentVolume{},
		byClass: map[string][]*corev1.PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{},
		limits:  newVolumeLimits(),
		users:   map[objectName]int{},
		capacities: capacities{
			drivers: map[string]bool{}, byClass: map[string]map[objectName]capacityReport{},
		},
		assumed: newAssumedBindings(),
	}
}

// SetClaim adds a claim, or replaces it.
func (s *Snapshot) SetClaim(claim *corev1.PersistentVolumeClaim) {
	s.storage.claims[objectName{claim.Namespace, claim.Name}] = s.storage.assumed.claim(claim)
}

// RemoveClaim removes a claim.
func (s *Snapshot) RemoveClaim(namespace, name string) {
	delete(s.storage.claims, objectName{namespace, name})
	delete(s.storage.assumed.selected, objectName{namespace, name})
}

// SetVolume adds a persistent volume, or replaces it.
func (s *Snapshot) SetVolume(pv *corev1.PersistentVolume) {
	s.storage.setVolume(s.storage.assumed.volume(pv))
}

// RemoveVolume removes a persistent volume.
func (s *Snapshot) RemoveVolume(name string) {
	s.storage.removeVolume(name)
	delete(s.storage.assumed.reserved, name)
}

func (st *storage) setVolume(pv *corev1.PersistentVolume) {
	st.removeVolume(pv.Name)
	st.volumes[pv.Name] = pv
	class := volume.GetPersistentVolumeClass(pv)
	list := st.byClass[class]
	i, _ := slices.BinarySearchFunc(list, pv.Name, compareVolume)
	st.byClass[class] = slices.Insert(list, i, pv)
}

func (st *storage) removeVolume(name string) {
	pv := st.volumes[name]
	if pv == nil {
		return
	}
	delete(st.volumes, name)
	class := volume.GetPersistentVolumeClass(pv)
	list := st.byClass[class]
	if i, found := slices.BinarySearchFunc(list, name, compareVolume); found {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) > 0 {
		st.byClass[class] = list
	} else {
		delete(st.byClass, class)
	}
}

func compareVolume(pv *corev1.PersistentVolume, name string) int { return cmp.Compare(pv.Name, name) }

// SetClass adds a storage class, or replaces it.
func (s *Snapshot) SetClass(class *storagev1.StorageClass) { s.storage.classes[class.Name] = class }

// RemoveClass removes a storage class.
func (s *Snapshot) RemoveClass(name string) { delete(s.storage.classes, name) }

// claimed is a volume of a pod with a claim.
type claimed struct {
	name objectName
	// ephemeral is set if the claim is created for the pod.
	ephemeral bool
}

// claimsOf returns the claims of a pod, in the order of its volumes.
func claimsOf(pod *corev1.Pod) []claimed {
	var claims []claimed
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, claimed{objectName{pod.Namespace, v.PersistentVolumeClaim.ClaimName}, false})
		case v.Ephemeral != nil:
			claims = append(claims, claimed{objectName{pod.Namespace, ephemeral.VolumeClaimName(pod, v)}, true})
		}
	}
	return claims
}

// UsesClaim reports whether a pod uses a claim of its namespace.
func UsesClaim(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(claimsOf(pod), func(c claimed) bool { return c.name.name == claim })
}

// usable returns a claim of a pod, or the reason why the pod cannot use it.
func (st *storage) usable(pod *corev1.Pod, c claimed) (*corev1.PersistentVolumeClaim, error) {
	claim := st.claims[c.name]
	switch {
	case claim == nil && c.ephemeral:
		return nil, fmt.Errorf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", c.name.name)
	case claim == nil:
		return nil, fmt.Errorf("persistentvolumeclaim %q not found", c.name.name)
	case claim.Status.Phase == corev1.ClaimLost:
		return nil, fmt.Errorf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return nil, fmt.Errorf("persistentvolumeclaim %q is being deleted", claim.Name)
	case c.ephemeral:
		return claim, ephemeral.VolumeIsForPod(pod, claim)
	}
	return claim, nil
}

// podClaims are the claims of a pod by whether they are bound.
type podClaims struct {
	// bound claims have a volume, and waiting ones are bound when the pod has a node
	// (WaitForFirstConsumer).
	bound, waiting []*corev1.PersistentVolumeClaim
}

// sort returns a pod's claims. The error is the reason why the pod is unschedulable on
// any node.
func (st *storage) sort(pod *corev1.Pod, claims []claimed) (podClaims, error) {
	var sorted podClaims
	immediate := false
	for _, c := range claims {
		claim, err := st.usable(pod, c)
		if err != nil {
			return podClaims{}, err
		}
		_, completed := claim.Annotations[volume.AnnBindCompleted]
		switch {
		case claim.Spec.VolumeName != "" && completed:
			sorted.bound = append(sorted.bound, claim)
		case claim.Spec.VolumeName == "" && st.waitsForConsumer(claim):
			sorted.waiting = append(sorted.waiting, claim)
		default:
			immediate = true
		}
	}
	if immediate {
		return podClaims{}, errors.New("pod has unbound immediate PersistentVolumeClaims")
	}
	return sorted, nil
}

// waitsForConsumer reports whether a claim is bound only when a pod needs it.
func (st *storage) waitsForConsumer(claim *corev1.PersistentVolumeClaim) bool {
	class := st.classes[volume.GetPersistentVolumeClaimClass(claim)]
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// csiVolume is a volume of a CSI driver.
type csiVolume struct{ driver, handle string }

// csiVolumeOf returns the volume of a claim, bound or yet to be provisioned;
// false if it is not one of a CSI driver.
func (st *storage) csiVolumeOf(claim *corev1.PersistentVolumeClaim) (csiVolume, bool) {
	if pv := st.volumes[claim.Spec.VolumeName]; pv != nil {
		if pv.Spec.CSI == nil {
			return csiVolume{}, false
		}
		return csiVolume{pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle}, true
	}
	class := st.classes[volume.GetPersistentVolumeClaimClass(claim)]
	if class == nil {
		return csiVolume{}, false
	}
	return csiVolume{class.Provisioner, "unbound " + claim.Namespace + "/" + claim.Name}, true
}

// csiVolumes returns the different CSI volumes of claims.
func (st *storage) csiVolumes(names []claimed) map[csiVolume]bool {
	volumes := map[csiVolume]bool{}
	for _, c := range names {
		if claim := st.claims[c.name]; claim != nil {
			if v, ok := st.csiVolumeOf(claim); ok {
				volumes[v] = true
			}
		}
	}
	return volumes
}

// use adds pods to the users of claims.
func (st *storage) use(claims []claimed, times int) {
	for _, c := range claims {
		increase(st.users, c.name, times)
	}
}

// allowedTopology reports whether a node is one on which a class provisions volumes.
func allowedTopology(class *storagev1.StorageClass, n *node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if value, ok := n.label(e.Key); !ok || !slices.Contains(e.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}

// bySize sorts claims by the storage that they request, so that small claims do not
// use large volumes.
func bySize(claims []*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim {
	return slices.SortedStableFunc(slices.Values(claims), func(a, b *corev1.PersistentVolumeClaim) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
}
