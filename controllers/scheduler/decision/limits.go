package decision

import (
	"math"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// volumeLimits are the numbers of volumes that nodes can have, and the volumes that are
// attached to them.
type volumeLimits struct {
	// byNode are, by the name of the node, the limits of the CSI drivers that it has:
	// unlimited for a driver without one.
	byNode map[string]map[string]int
	// required are the drivers without which a node cannot get a pod with a volume of
	// theirs (KEP-5030).
	required sets.Set[string]
	// attached are, by the name of the node, the attachments by their names.
	attached map[string]map[string]attachment
}

// attachment is the attachment of a persistent volume to a node.
type attachment struct{ driver, volume string }

const unlimited = math.MaxInt

func newVolumeLimits() volumeLimits {
	return volumeLimits{byNode: map[string]map[string]int{}, required: sets.New[string](), attached: map[string]map[string]attachment{}}
}

// SetCSINode sets which drivers a node has, and how many volumes of each it can have. The
// default is no limit.
func (s *Snapshot) SetCSINode(object *storagev1.CSINode) {
	drivers := map[string]int{}
	for _, driver := range object.Spec.Drivers {
		drivers[driver.Name] = unlimited
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			drivers[driver.Name] = int(*driver.Allocatable.Count)
		}
	}
	s.storage.limits.byNode[object.Name] = drivers
}

// RemoveCSINode removes the drivers of a node.
func (s *Snapshot) RemoveCSINode(name string) { delete(s.storage.limits.byNode, name) }

// SetAttachment adds the attachment of a persistent volume to a node, or replaces it. Its
// spec does not change.
func (s *Snapshot) SetAttachment(a *storagev1.VolumeAttachment) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return
	}
	of := s.storage.limits.attached[a.Spec.NodeName]
	if of == nil {
		of = map[string]attachment{}
		s.storage.limits.attached[a.Spec.NodeName] = of
	}
	of[a.Name] = attachment{a.Spec.Attacher, *a.Spec.Source.PersistentVolumeName}
}

// RemoveAttachment removes an attachment.
func (s *Snapshot) RemoveAttachment(a *storagev1.VolumeAttachment) {
	of := s.storage.limits.attached[a.Spec.NodeName]
	delete(of, a.Name)
	if len(of) == 0 {
		delete(s.storage.limits.attached, a.Spec.NodeName)
	}
}

// hasRoomForVolumes rejects nodes whose limit of volumes of a CSI driver would be
// exceeded, and those without a driver that the pod's volumes require.
func hasRoomForVolumes(s *Snapshot, r *request) rule {
	if len(r.claims) == 0 {
		return rule{}
	}
	wanted := s.storage.csiVolumes(r.claims)
	var required []string
	for v := range wanted {
		if s.storage.limits.required.Has(v.driver) {
			required = append(required, v.driver)
		}
	}
	slices.Sort(required)
	if len(wanted) == 0 || len(s.storage.limits.byNode) == 0 && len(required) == 0 {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		limits := s.storage.limits.byNode[n.name]
		for _, driver := range required {
			if _, ok := limits[driver]; !ok {
				return append(why, driver+" CSI driver is not installed on the node")
			}
		}
		if s.storage.exceedsLimits(n, limits, wanted) {
			why = append(why, "node(s) exceed max volume count")
		}
		return why
	}}
}

// exceedsLimits reports whether a node would have too many volumes of a driver with those
// that are wanted. Volumes that are still attached without a pod count, too.
func (st *storage) exceedsLimits(n *node, limits map[string]int, wanted map[csiVolume]bool) bool {
	limited := false
	for v := range wanted {
		limit, ok := limits[v.driver]
		limited = limited || ok && limit != unlimited
	}
	if !limited {
		return false
	}
	volumes := st.attachedTo(n)
	drivers := map[string]int{}
	for v := range volumes {
		drivers[v.driver]++
	}
	for v := range wanted {
		if volumes[v] {
			continue
		}
		drivers[v.driver]++
		if limit, ok := limits[v.driver]; ok && drivers[v.driver] > limit {
			return true
		}
	}
	return false
}

// attachedTo returns the volumes of a node's pods, and those that are attached to it.
func (st *storage) attachedTo(n *node) map[csiVolume]bool {
	volumes := map[csiVolume]bool{}
	for _, p := range n.pods {
		for v := range st.csiVolumes(p.claims) {
			volumes[v] = true
		}
	}
	for _, a := range st.limits.attached[n.name] {
		if pv := st.volumes[a.volume]; pv != nil && pv.Spec.CSI != nil {
			volumes[csiVolume{a.driver, pv.Spec.CSI.VolumeHandle}] = true
		}
	}
	return volumes
}
