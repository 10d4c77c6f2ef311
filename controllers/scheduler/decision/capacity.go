package decision

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// capacities are what CSI drivers report of the storage that they can provision
// (KEP-1472).
type capacities struct {
	// drivers are those whose reports count, by name.
	drivers map[string]bool
	// byClass are the reports by the name of their storage class.
	byClass map[string]map[objectName]capacityReport
}

// capacityReport is a report with the nodes that it is about.
type capacityReport struct {
	*storagev1.CSIStorageCapacity
	nodes labels.Selector
}

// SetDriver sets whether the capacity that a driver reports counts, and whether the pods
// with its volumes need a node with the driver.
func (s *Snapshot) SetDriver(driver *storagev1.CSIDriver) {
	s.RemoveDriver(driver.Name)
	if ptr.Deref(driver.Spec.StorageCapacity, false) {
		s.storage.capacities.drivers[driver.Name] = true
	}
	if ptr.Deref(driver.Spec.PreventPodSchedulingIfMissing, false) {
		s.storage.limits.required.Insert(driver.Name)
	}
}

// RemoveDriver removes a driver.
func (s *Snapshot) RemoveDriver(name string) {
	delete(s.storage.capacities.drivers, name)
	s.storage.limits.required.Delete(name)
}

// SetCapacity adds a report, or replaces it. Its class does not change. Without a topology, or with
// an invalid one, it is about no node.
func (s *Snapshot) SetCapacity(report *storagev1.CSIStorageCapacity) {
	of := s.storage.capacities.byClass[report.StorageClassName]
	if of == nil {
		of = map[objectName]capacityReport{}
		s.storage.capacities.byClass[report.StorageClassName] = of
	}
	nodes, err := metav1.LabelSelectorAsSelector(report.NodeTopology)
	if err != nil {
		nodes = labels.Nothing()
	}
	of[objectName{report.Namespace, report.Name}] = capacityReport{report, nodes}
}

// RemoveCapacity removes a report.
func (s *Snapshot) RemoveCapacity(report *storagev1.CSIStorageCapacity) {
	of := s.storage.capacities.byClass[report.StorageClassName]
	delete(of, objectName{report.Namespace, report.Name})
	if len(of) == 0 {
		delete(s.storage.capacities.byClass, report.StorageClassName)
	}
}

// suffice reports whether the volumes that are to be provisioned for a node fit into
// what their drivers report for it, each by itself.
func (st *storage) suffice(claims []*corev1.PersistentVolumeClaim, decisions []ClaimDecision, n *node) bool {
	for i, d := range decisions {
		if d.Volume == "" && !st.sufficient(claims[i], n) {
			return false
		}
	}
	return true
}

func (st *storage) sufficient(claim *corev1.PersistentVolumeClaim, n *node) bool {
	if !st.isLimited(claim) {
		return true
	}
	for range st.reports(claim, n) {
		return true
	}
	return false
}

// isLimited reports whether the driver of a claim's class reports how much it can provision.
func (st *storage) isLimited(claim *corev1.PersistentVolumeClaim) bool {
	class := st.classes[volume.GetPersistentVolumeClaimClass(claim)]
	return class != nil && st.capacities.drivers[class.Provisioner]
}

// reports yields the reports about a node by which the volume of a claim can be provisioned there.
func (st *storage) reports(claim *corev1.PersistentVolumeClaim, n *node) iter.Seq[*storagev1.CSIStorageCapacity] {
	class, size := volume.GetPersistentVolumeClaimClass(claim), claim.Spec.Resources.Requests.Storage()
	return func(yield func(*storagev1.CSIStorageCapacity) bool) {
		for _, report := range st.capacities.byClass[class] {
			limit := report.Capacity
			if report.MaximumVolumeSize != nil {
				limit = report.MaximumVolumeSize
			}
			if limit != nil && limit.Cmp(*size) >= 0 && report.nodes.Matches(labels.Set(n.object.Labels)) && !yield(report.CSIStorageCapacity) {
				return
			}
		}
	}
}
