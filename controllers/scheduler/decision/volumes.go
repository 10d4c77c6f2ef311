package decision

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/volume"
)

// ClaimDecision is how to bind a claim of the pod for the chosen node: to an existing
// volume, or to one that is to be provisioned.
type ClaimDecision struct {
	// Claim is the name of the claim, in the pod's namespace.
	Claim string
	// Volume is the persistent volume to bind it to. If it is empty the volume is
	// to be provisioned for the node: annotate the claim with its name
	// (volume.kubernetes.io/selected-node), if it is not yet, and wait.
	Volume string
}

// mayShareVolumes rejects claims that another pod uses exclusively (ReadWriteOncePod,
// KEP-2485), and nodes where another pod uses a disk that one machine cannot mount
// twice.
func mayShareVolumes(s *Snapshot, r *request) rule {
	exclusive := false
	for _, c := range r.claims {
		if c.ephemeral {
			continue
		}
		claim := s.storage.claims[c.name]
		if claim == nil {
			_, err := s.storage.usable(r.pod, c)
			return rule{podReason: err.Error()}
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) && s.storage.users[c.name] > 0 {
			exclusive = true
		}
	}
	disks := disksOf(r.pod)
	if len(disks) == 0 && !exclusive {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		if n.usesDisk(disks) {
			return append(why, "node(s) had no available disk")
		}
		if exclusive {
			why = append(why, "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
		}
		return why
	}}
}

// disksOf returns the volumes of a pod that are disks named in the pod itself.
func disksOf(pod *corev1.Pod) []*corev1.Volume {
	var disks []*corev1.Volume
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil {
			disks = append(disks, v)
		}
	}
	return disks
}

// usesDisk reports whether a pod of the node uses one of the disks.
func (n *node) usesDisk(disks []*corev1.Volume) bool {
	if len(disks) == 0 {
		return false
	}
	for _, p := range n.pods {
		for _, theirs := range p.disks {
			for _, ours := range disks {
				if conflict(ours, theirs) {
					return true
				}
			}
		}
	}
	return false
}

// conflict reports whether two volumes are the same disk, and not both read-only
// of a kind that allows this.
func conflict(a, b *corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		return a.GCEPersistentDisk.PDName == b.GCEPersistentDisk.PDName && !(a.GCEPersistentDisk.ReadOnly && b.GCEPersistentDisk.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		sameMonitor := slices.ContainsFunc(a.RBD.CephMonitors, func(m string) bool { return slices.Contains(b.RBD.CephMonitors, m) })
		return sameMonitor && a.RBD.RBDPool == b.RBD.RBDPool && a.RBD.RBDImage == b.RBD.RBDImage && !(a.RBD.ReadOnly && b.RBD.ReadOnly)
	}
	return false
}

// reachesVolumes rejects nodes on which a volume of the pod cannot be used, or a
// waiting claim cannot be bound.
func reachesVolumes(s *Snapshot, r *request) rule {
	if len(r.claims) == 0 {
		return rule{}
	}
	claims, err := s.storage.sort(r.pod, r.claims)
	if err != nil {
		return rule{podReason: err.Error()}
	}
	var reach []*nodeaffinity.LazyErrorNodeSelector
	missing := false
	for _, claim := range claims.bound {
		pv := s.storage.volumes[claim.Spec.VolumeName]
		switch {
		case pv == nil:
			missing = true
		case pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil:
			reach = append(reach, nodeaffinity.NewLazyErrorNodeSelector(pv.Spec.NodeAffinity.Required))
		}
	}
	r.waiting = bySize(claims.waiting)
	return rule{check: func(n *node, why []string) []string {
		for _, selector := range reach {
			if ok, err := selector.Match(n.object); err != nil || !ok {
				why = append(why, "node(s) didn't match PersistentVolume's node affinity")
				break
			}
		}
		if decisions, ok := r.place(&s.storage, n); !ok {
			why = append(why, "node(s) didn't find available persistent volumes to bind")
		} else if !s.storage.suffice(r.waiting, decisions, n) {
			why = append(why, "node(s) did not have enough free storage")
		}
		if missing {
			why = append(why, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
		}
		return why
	}}
}

// volumePlacement is what storage.place has returned for a node.
type volumePlacement struct {
	decisions []ClaimDecision
	ok        bool
}

// place is storage.place for the waiting claims of a pod. It is found once for a node, and used by
// the filter, the score and the decision.
func (r *request) place(st *storage, n *node) ([]ClaimDecision, bool) {
	if len(r.waiting) == 0 {
		return nil, true
	}
	p, found := r.placed[n]
	if !found {
		p.decisions, p.ok = st.place(r.waiting, n)
		if r.placed == nil {
			r.placed = map[*node]volumePlacement{}
		}
		r.placed[n] = p
	}
	return p.decisions, p.ok
}

// place returns for each of the claims a volume that can be used on a node, or that
// it is to be provisioned; false if neither is possible. The claims are sorted by
// size.
func (st *storage) place(claims []*corev1.PersistentVolumeClaim, n *node) ([]ClaimDecision, bool) {
	var decisions []ClaimDecision
	taken := map[string]*corev1.PersistentVolume{}
	for _, claim := range claims {
		class := volume.GetPersistentVolumeClaimClass(claim)
		if selected, ok := claim.Annotations[volume.AnnSelectedNode]; ok {
			if selected != n.name || !st.provisions(class, n) {
				return nil, false
			}
			decisions = append(decisions, ClaimDecision{Claim: claim.Name})
			continue
		}
		pv, err := volume.FindMatchingVolume(claim, st.byClass[class], n.object, taken, true, true)
		switch {
		case err == nil && pv != nil:
			taken[pv.Name] = pv
			decisions = append(decisions, ClaimDecision{claim.Name, pv.Name})
		case st.provisions(class, n):
			decisions = append(decisions, ClaimDecision{Claim: claim.Name})
		default:
			return nil, false
		}
	}
	return decisions, true
}

// provisions reports whether a class provisions volumes for a node.
func (st *storage) provisions(name string, n *node) bool {
	class := st.classes[name]
	return class != nil && class.Provisioner != "" && class.Provisioner != volume.NotSupportedProvisioner && allowedTopology(class, n)
}

// zoneLabels are the labels of volumes that nodes must have, too, with the node label
// that replaces a deprecated one.
var zoneLabels = []struct{ volume, node string }{
	{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
	{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
	{corev1.LabelTopologyZone, corev1.LabelTopologyZone},
	{corev1.LabelTopologyRegion, corev1.LabelTopologyRegion},
}

// inZoneOfVolumes rejects nodes in other zones than the volumes, by the volumes'
// labels.
func inZoneOfVolumes(s *Snapshot, r *request) rule {
	type zones struct {
		key, newKey string
		values      []string
	}
	var all []zones
	for _, c := range r.claims {
		claim := s.storage.claims[c.name]
		if c.ephemeral || claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		pv := s.storage.volumes[claim.Spec.VolumeName]
		if pv == nil {
			return rule{podReason: `persistentvolume "` + claim.Spec.VolumeName + `" not found`}
		}
		for _, label := range zoneLabels {
			if value, ok := pv.Labels[label.volume]; ok {
				// A volume of several zones lists them: a__b.
				all = append(all, zones{label.volume, label.node, strings.Split(value, "__")})
			}
		}
	}
	if len(all) == 0 {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		if !n.hasZone() {
			return why
		}
		for _, z := range all {
			value, ok := n.label(z.key)
			if !ok {
				value, ok = n.label(z.newKey)
			}
			if !ok || !slices.Contains(z.values, value) {
				return append(why, "node(s) had no available volume zone")
			}
		}
		return why
	}}
}

// hasZone reports whether a node has a label of a zone or region. In a cluster of
// a single zone it may have none, and is accepted.
func (n *node) hasZone() bool {
	return slices.ContainsFunc(zoneLabels, func(l struct{ volume, node string }) bool {
		_, ok := n.label(l.volume)
		return ok
	})
}
