package decision

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// assumedBindings are the decisions about claims that are being written, and that no
// watch shows yet. Without them, the next pod would get the same volume.
type assumedBindings struct {
	// reserved are the volumes that claims get, by name, and selected the claims for which
	// a provisioner makes a volume on a node.
	reserved map[string]*reservation
	selected map[objectName]*selectedNode
	byPod    map[types.UID][]ClaimDecision
}

// reservation is a volume as a watch shows it, and the pod and the claim that get it.
type reservation struct {
	pod   types.UID
	claim *corev1.PersistentVolumeClaim
	shown *corev1.PersistentVolume
}

// selectedNode is a claim as a watch shows it, and the node that is selected for it.
type selectedNode struct {
	pod   types.UID
	node  string
	shown *corev1.PersistentVolumeClaim
}

func newAssumedBindings() assumedBindings {
	return assumedBindings{reserved: map[string]*reservation{}, selected: map[objectName]*selectedNode{}, byPod: map[types.UID][]ClaimDecision{}}
}

// AssumeClaims makes the snapshot regard the decisions about the claims of an assumed pod as
// written, until watches show them. They replace earlier ones of the pod.
func (s *Snapshot) AssumeClaims(pod *corev1.Pod, decisions []ClaimDecision) {
	s.ForgetClaims(pod)
	st := &s.storage
	for _, d := range decisions {
		name := objectName{pod.Namespace, d.Claim}
		claim, pv := st.claims[name], st.volumes[d.Volume]
		switch {
		case claim == nil:
		case d.Volume == "" && claim.Annotations[volume.AnnSelectedNode] == "":
			st.assumed.selected[name] = &selectedNode{pod.UID, pod.Spec.NodeName, claim}
			s.SetClaim(claim)
		case pv != nil && pv.Spec.ClaimRef == nil:
			st.assumed.reserved[d.Volume] = &reservation{pod.UID, claim, pv}
			s.SetVolume(pv)
		}
	}
	if len(decisions) > 0 {
		st.assumed.byPod[pod.UID] = decisions
	}
}

// ForgetClaims ends the assumptions for a pod, and reports whether there were any that no
// watch has shown. The volume of a claim that is bound to it stays reserved until the watch
// of volumes, which may be behind that of claims, shows it.
func (s *Snapshot) ForgetClaims(pod *corev1.Pod) bool {
	forgotten := false
	assumed := &s.storage.assumed
	for _, d := range assumed.byPod[pod.UID] {
		name := objectName{pod.Namespace, d.Claim}
		claim := s.storage.claims[name]
		bound := claim != nil && d.Volume != "" && claim.Spec.VolumeName == d.Volume
		if r := assumed.reserved[d.Volume]; r != nil && r.pod == pod.UID && !bound {
			delete(assumed.reserved, d.Volume)
			s.SetVolume(r.shown)
			forgotten = true
		}
		if selected := assumed.selected[name]; selected != nil && selected.pod == pod.UID {
			delete(assumed.selected, name)
			s.SetClaim(selected.shown)
			forgotten = true
		}
	}
	delete(assumed.byPod, pod.UID)
	return forgotten
}

// volume returns a volume of a watch with its reservation, which ends if the watch shows
// one.
func (a *assumedBindings) volume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	r := a.reserved[pv.Name]
	if r == nil {
		return pv
	}
	if pv.UID != r.shown.UID || pv.Spec.ClaimRef != nil {
		delete(a.reserved, pv.Name)
		return pv
	}
	r.shown = pv
	reserved := *pv
	reserved.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: r.claim.Namespace, Name: r.claim.Name, UID: r.claim.UID}
	return &reserved
}

// claim returns a claim of a watch with its selected node, until the watch shows one or
// the claim has a volume.
func (a *assumedBindings) claim(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	name := objectName{claim.Namespace, claim.Name}
	s := a.selected[name]
	if s == nil {
		return claim
	}
	if claim.UID != s.shown.UID || claim.Spec.VolumeName != "" || claim.Annotations[volume.AnnSelectedNode] != "" {
		delete(a.selected, name)
		return claim
	}
	s.shown = claim
	selected := *claim
	selected.Annotations = maps.Clone(claim.Annotations)
	if selected.Annotations == nil {
		selected.Annotations = map[string]string{}
	}
	selected.Annotations[volume.AnnSelectedNode] = s.node
	return &selected
}
