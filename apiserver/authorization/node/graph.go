package node

import (
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/apis/podspec"
)

// graph knows which objects the pods of a node refer to, directly or through a claim
// and its volume. A node has some hundred pods with some references each: a search
// through them takes microseconds and needs no further index. The caller of the methods
// that change it holds the lock.
type graph struct {
	mu sync.RWMutex
	// pods are the references of the pods that are bound to a node, by node.
	pods map[string]map[types.NamespacedName][]podspec.Reference
	// claims are the volumes that a claim is bound to. The volume names the claim, so
	// that a claim that names a volume by itself gives no access to it.
	claims map[types.NamespacedName][]*volume
	// volumes are those of claims, by their names.
	volumes map[string]*volume
	// local are the nodes of volumes that are directories of a node, by their names.
	local map[string]string
	// attachments are the nodes of volume attachments, by their names.
	attachments map[string]string
}

// volume is a persistent volume that is bound to a claim.
type volume struct {
	claim   types.NamespacedName
	secrets []types.NamespacedName // of its driver
}

func newGraph() *graph {
	return &graph{
		pods:        map[string]map[types.NamespacedName][]podspec.Reference{},
		claims:      map[types.NamespacedName][]*volume{},
		volumes:     map[string]*volume{},
		local:       map[string]string{},
		attachments: map[string]string{},
	}
}

func (g *graph) setPod(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	pods := g.pods[pod.Spec.NodeName]
	if pods == nil {
		pods = map[types.NamespacedName][]podspec.Reference{}
		g.pods[pod.Spec.NodeName] = pods
	}
	pods[podKey(pod)] = references(pod)
}

func (g *graph) removePod(pod *corev1.Pod) {
	node := pod.Spec.NodeName
	delete(g.pods[node], podKey(pod))
	if len(g.pods[node]) == 0 {
		delete(g.pods, node)
	}
}

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: unique.Make(pod.Namespace).Value(), Name: pod.Name}
}

// references returns what a pod gives its node access to. Mirror pods give none: a node
// creates them itself.
func references(pod *corev1.Pod) []podspec.Reference {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil
	}
	var all []podspec.Reference
	for ref := range podspec.References(pod) {
		if !slices.Contains(all, ref) {
			// Many pods refer to objects of the same names.
			ref.Name = unique.Make(ref.Name).Value()
			all = append(all, ref)
		}
	}
	return slices.Clip(slices.AppendSeq(all, podspec.ResourceClaims(pod)))
}

func (g *graph) setVolume(v *corev1.PersistentVolume) {
	g.removeVolume(v)
	if localpath.Made(v) {
		g.local[v.Name] = v.Labels[localpath.NodeLabel]
	}
	if v.Spec.ClaimRef == nil {
		return
	}
	made := &volume{
		claim:   types.NamespacedName{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name},
		secrets: slices.Collect(volumeSecrets(v)),
	}
	g.volumes[v.Name] = made
	g.claims[made.claim] = append(g.claims[made.claim], made)
}

func (g *graph) removeVolume(v *corev1.PersistentVolume) {
	delete(g.local, v.Name)
	old := g.volumes[v.Name]
	if old == nil {
		return
	}
	delete(g.volumes, v.Name)
	left := slices.DeleteFunc(g.claims[old.claim], func(v *volume) bool { return v == old })
	if len(left) == 0 {
		delete(g.claims, old.claim)
	} else {
		g.claims[old.claim] = left
	}
}

func (g *graph) setAttachment(a *storagev1.VolumeAttachment) {
	g.attachments[a.Name] = a.Spec.NodeName
}

func (g *graph) removeAttachment(a *storagev1.VolumeAttachment) {
	delete(g.attachments, a.Name)
}

// reset removes all pods, volumes or attachments, before a new list of them is set.
func (g *graph) reset(object any) {
	switch object.(type) {
	case *corev1.Pod:
		clear(g.pods)
	case *corev1.PersistentVolume:
		clear(g.volumes)
		clear(g.claims)
		clear(g.local)
	case *storagev1.VolumeAttachment:
		clear(g.attachments)
	}
}

// bound reports whether a pod is bound to the node.
func (g *graph) bound(node string, pod types.NamespacedName) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, is := g.pods[node][pod]
	return is
}

// refers reports whether a pod of the node refers to the object.
func (g *graph) refers(node, namespace string, ref podspec.Reference) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for pod, refs := range g.pods[node] {
		if pod.Namespace == namespace && slices.Contains(refs, ref) {
			return true
		}
	}
	return false
}

// usesSecret reports whether a pod of the node refers to the secret, or to a claim
// whose volume's driver needs it.
func (g *graph) usesSecret(node string, secret types.NamespacedName) bool {
	if g.refers(node, secret.Namespace, podspec.Reference{Kind: podspec.Secret, Name: secret.Name}) {
		return true
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	for pod, refs := range g.pods[node] {
		for _, ref := range refs {
			if ref.Kind != podspec.PersistentVolumeClaim {
				continue
			}
			for _, v := range g.claims[types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}] {
				if slices.Contains(v.secrets, secret) {
					return true
				}
			}
		}
	}
	return false
}

// usesVolume reports whether a pod of the node refers to the claim of a volume.
func (g *graph) usesVolume(node, name string) bool {
	g.mu.RLock()
	v := g.volumes[name]
	g.mu.RUnlock()
	return v != nil && g.refers(node, v.claim.Namespace, podspec.Reference{Kind: podspec.PersistentVolumeClaim, Name: v.claim.Name})
}

// hasVolume reports whether a volume is a directory of the node.
func (g *graph) hasVolume(node, name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.local[name] == node
}

// attaches reports whether a volume attachment is one of the node.
func (g *graph) attaches(node, name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.attachments[name] == node
}
