package binding

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/storage/volume"
)

// Stock holds the volumes that are available and that no claim has reserved, in the
// order in which claims take them. The zero value is empty and ready for use.
type Stock struct {
	mu      sync.Mutex
	classes map[string]*[maxModes + 1]shelf
	places  map[string]place
}

// maxModes is the number of access modes that exist.
const maxModes = 4

// shelf holds the volumes of a class with the same number of access modes, ordered by
// size and name.
type shelf []*corev1.PersistentVolume

// place is where a volume is.
type place struct {
	class string
	modes int
	size  resource.Quantity
}

// Available reports whether a claim can take a volume that it has not reserved.
func Available(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeAvailable && pv.Spec.ClaimRef == nil && pv.DeletionTimestamp == nil
}

// Set records the present state of a volume. It must not be modified afterwards.
func (s *Stock) Set(pv *corev1.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(pv)
}

// Remove records that a volume does not exist.
func (s *Stock) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(name)
}

// Return puts a volume back that was taken and is not bound, in its present state, which
// read returns; nil if it does not exist. Meanwhile no change of it is recorded, so that
// the read state cannot replace a later one.
func (s *Stock) Return(name string, read func() (*corev1.PersistentVolume, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pv, err := read()
	if err != nil {
		return err
	}
	s.remove(name)
	if pv != nil {
		s.set(pv)
	}
	return nil
}

// Take removes and returns the volume that a claim is bound to, nil if there is none: the
// smallest of those whose access modes are the fewest that include the claim's. A claim
// with an invalid selector takes none; [Claim] reports it.
func (s *Stock) Take(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	shelves := s.classes[volume.GetPersistentVolumeClaimClass(claim)]
	if shelves == nil {
		return nil
	}
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	for _, sorted := range shelves {
		for _, pv := range sorted[sorted.find(requested, ""):] {
			if !volume.CheckAccessModes(claim, pv) {
				continue
			}
			found, err := volume.FindMatchingVolume(claim, []*corev1.PersistentVolume{pv}, nil, nil, false, true)
			if err != nil {
				return nil
			}
			if found != nil {
				s.remove(found.Name)
				return found
			}
		}
	}
	return nil
}

func (s *Stock) set(pv *corev1.PersistentVolume) {
	s.remove(pv.Name)
	if !Available(pv) {
		return
	}
	if s.classes == nil {
		s.classes, s.places = map[string]*[maxModes + 1]shelf{}, map[string]place{}
	}
	at := place{volume.GetPersistentVolumeClass(pv), min(len(pv.Spec.AccessModes), maxModes), pv.Spec.Capacity[corev1.ResourceStorage]}
	if s.classes[at.class] == nil {
		s.classes[at.class] = &[maxModes + 1]shelf{}
	}
	sorted := &s.classes[at.class][at.modes]
	*sorted = slices.Insert(*sorted, sorted.find(at.size, pv.Name), pv)
	s.places[pv.Name] = at
}

func (s *Stock) remove(name string) {
	at, ok := s.places[name]
	if !ok {
		return
	}
	delete(s.places, name)
	sorted := &s.classes[at.class][at.modes]
	i := sorted.find(at.size, name)
	*sorted = slices.Delete(*sorted, i, i+1)
	for _, left := range s.classes[at.class] {
		if len(left) > 0 {
			return
		}
	}
	delete(s.classes, at.class)
}

// find returns the index of the first volume that is not before a size and name.
func (s shelf) find(size resource.Quantity, name string) int {
	i, _ := slices.BinarySearchFunc(s, name, func(pv *corev1.PersistentVolume, name string) int {
		held := pv.Spec.Capacity[corev1.ResourceStorage]
		if order := held.Cmp(size); order != 0 {
			return order
		}
		return strings.Compare(pv.Name, name)
	})
	return i
}
