package attachdetach

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"svc.dev/svc/controllers/pods"
)

// state is what a plan for a node is made from.
type state struct {
	name string
	node *corev1.Node // nil if it was deleted
	// wanted are the volumes of the node's pods that a driver attaches.
	wanted []wanted
	// attachments are those to the node.
	attachments []*storagev1.VolumeAttachment
	// volumes are those of the attachments, by name.
	volumes map[string]*corev1.PersistentVolume
	now     time.Time
	// noForce keeps attachments that a node may still use after forceAfter.
	noForce bool
	// since is when the volume of an attachment was last wanted; a zero time is now.
	since map[string]time.Time
}

// wanted is a volume that pods of the node use.
type wanted struct {
	volume *corev1.PersistentVolume
	pods   []*corev1.Pod
	// elsewhere is another node that an exclusive volume is attached to, empty if there is
	// none or if the volume has an attachment to this node.
	elsewhere string
}

// plan is what to do for a node.
type plan struct {
	// attached are the volumes of the node's status, which are written before an
	// attachment is deleted: an agent does not mount a volume that is not among them.
	attached []corev1.AttachedVolume
	create   []creation
	delete   []*storagev1.VolumeAttachment
	events   []event
	// unused are the attachments that no pod wants any more but the node still uses.
	unused []string
	// after is the time until the next sync, if that comes without an event.
	after time.Duration
}

// creation is the creation of the attachment of a volume that pods use.
type creation struct {
	wanted
	attachment *storagev1.VolumeAttachment
}

// event is an event about a pod.
type event struct {
	pod                   *corev1.Pod
	kind, reason, message string
}

// forceAfter is how long a volume that no pod wants is left to a node that still
// reports that it uses it, if the node is not ready (maxWaitForUnmountDuration of
// kube-controller-manager), and to one that was deleted and can report nothing.
const forceAfter = 6 * time.Minute

// decide returns the plan for a node.
func decide(s state) plan {
	var p plan
	existing := map[string]*storagev1.VolumeAttachment{}
	for _, a := range s.attachments {
		existing[a.Name] = a
	}
	names := map[string]bool{}
	for _, w := range s.wanted {
		name := attachmentName(w.volume, s.name)
		names[name] = true
		// The pods of a deleted node may run on until their own deletion: they keep their
		// attachments, but get no new ones.
		if s.node != nil {
			s.attach(&p, w, name, existing[name])
		}
	}
	for _, a := range s.attachments {
		if !names[a.Name] && a.Spec.Source.PersistentVolumeName != nil && ownName.MatchString(a.Name) {
			s.detach(&p, a)
		}
	}
	slices.SortFunc(p.attached, func(a, b corev1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// attach plans the attachment of a volume, or reports what it waits for.
func (s *state) attach(p *plan, w wanted, name string, a *storagev1.VolumeAttachment) {
	report := func(kind, reason, message string) {
		for _, pod := range w.pods {
			p.events = append(p.events, event{pod, kind, reason, message})
		}
	}
	switch {
	case a != nil && a.DeletionTimestamp != nil: // it is attached again when it has gone
	case a != nil && a.Status.Attached:
		unique := uniqueName(w.volume)
		if !reported(s.node, unique) {
			report(corev1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", w.volume.Name))
		}
		p.attached = append(p.attached, corev1.AttachedVolume{Name: unique})
	case a != nil && a.Status.AttachError != nil:
		report(corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", w.volume.Name, a.Status.AttachError.Message))
	case a != nil: // its driver has not attached it yet
	case exclusive(w.volume) && w.elsewhere != "":
		report(corev1.EventTypeWarning, "FailedAttachVolume", multiAttach(w.volume.Name, w.elsewhere))
	default:
		created := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
			Attacher: w.volume.Spec.CSI.Driver, NodeName: s.name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &w.volume.Name},
		}}
		created.Name = name
		p.create = append(p.create, creation{w, created})
	}
}

// multiAttach is the message about an exclusive volume that is attached to another node.
func multiAttach(volume, node string) string {
	return fmt.Sprintf("Multi-Attach error for volume %q Volume is already exclusively attached to one node and can't be attached to another: it is attached to node %s", volume, node)
}

// exclusive reports whether a volume can be attached to one node only.
func exclusive(pv *corev1.PersistentVolume) bool {
	return !slices.ContainsFunc(pv.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadWriteMany || m == corev1.ReadOnlyMany
	})
}

// detach plans the end of an attachment that no pod wants: when the node does not use
// the volume any more, was taken out of service, or is not ready or does not exist for
// too long.
func (s *state) detach(p *plan, a *storagev1.VolumeAttachment) {
	if a.DeletionTimestamp != nil {
		return
	}
	unique, used := s.inUse(a)
	if s.node != nil && (!used || outOfService(s.node)) {
		p.delete = append(p.delete, a)
		return
	}
	p.unused = append(p.unused, a.Name)
	if !s.noForce && (s.node == nil || !ready(s.node)) { // else its agent unmounts the volume
		since := s.since[a.Name]
		if since.IsZero() {
			since = s.now
		}
		left := since.Add(forceAfter).Sub(s.now)
		if left <= 0 {
			p.delete = append(p.delete, a)
			return
		}
		if p.after == 0 || left < p.after {
			p.after = left
		}
	}
	if unique != "" {
		p.attached = append(p.attached, corev1.AttachedVolume{Name: unique})
	}
}

// inUse returns the name of an attachment's volume in the status of the node, and whether
// the node reports that it uses the volume. The names of the volumes in use show which is
// that of the attachment, also if its PersistentVolume does not exist, is another one of its
// name, or is of an in-tree driver. The name is empty if the volume is not known.
func (s *state) inUse(a *storagev1.VolumeAttachment) (corev1.UniqueVolumeName, bool) {
	var used []corev1.UniqueVolumeName
	if s.node != nil {
		used = s.node.Status.VolumesInUse
	}
	for _, unique := range used {
		handle, ok := strings.CutPrefix(string(unique), csiPrefix+a.Spec.Attacher+"^")
		if ok && a.Name == attachmentNameOf(a.Spec.Attacher, handle, s.name) {
			return unique, true
		}
	}
	if pv := s.volumes[*a.Spec.Source.PersistentVolumeName]; pv != nil && pv.Spec.CSI != nil {
		return uniqueName(pv), slices.Contains(used, uniqueName(pv))
	}
	return "", false
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// attachable reports whether a driver attaches a volume. An unknown driver does.
func attachable(pv *corev1.PersistentVolume, driver *storagev1.CSIDriver) bool {
	return pv.Spec.CSI != nil && (driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired)
}

// ended reports whether a pod needs its volumes no longer: it has terminated, or is
// being deleted and none of its containers runs.
func ended(pod *corev1.Pod) bool {
	return pods.IsTerminal(pod) || pod.DeletionTimestamp != nil && len(pod.Status.ContainerStatuses) > 0 && pods.NothingRuns(pod)
}

// ownName matches the names of this controller's attachments, as those of
// kube-controller-manager's. The client that creates one of another name deletes it, too.
var ownName = regexp.MustCompile(`^csi-[0-9a-f]{64}$`)

// attachmentName is the name that the agent of the node looks for.
func attachmentName(pv *corev1.PersistentVolume, node string) string {
	return attachmentNameOf(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle, node)
}

func attachmentNameOf(driver, handle, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// uniqueName is the name of a volume in the status of a node.
func uniqueName(pv *corev1.PersistentVolume) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(csiPrefix + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle)
}

// csiPrefix begins the names of volumes of CSI drivers in the status of a node.
const csiPrefix = "kubernetes.io/csi/"

// status returns what the status of a node has to be: volumes that this controller does
// not attach stay.
func status(node *corev1.Node, attached []corev1.AttachedVolume) []corev1.AttachedVolume {
	var all []corev1.AttachedVolume
	for _, v := range node.Status.VolumesAttached {
		if !strings.HasPrefix(string(v.Name), csiPrefix) {
			all = append(all, v)
		}
	}
	return append(all, attached...)
}

func reported(node *corev1.Node, name corev1.UniqueVolumeName) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
}
