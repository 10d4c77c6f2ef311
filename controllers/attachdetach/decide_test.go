package attachdetach

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func volumeOf(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            modes,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}},
	}}
}

func attachmentOf(pv *corev1.PersistentVolume, node string, change func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName(pv, node)}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "d", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name},
	}}
	if change != nil {
		change(a)
	}
	return a
}

func attached(a *storagev1.VolumeAttachment) { a.Status.Attached = true }

func TestDecide(t *testing.T) {
	now := time.Unix(1e9, 0)
	pv, shared := volumeOf("pv", corev1.ReadWriteOnce), volumeOf("pv", corev1.ReadWriteMany)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	uses := func(pv *corev1.PersistentVolume) []wanted { return []wanted{{volume: pv, pods: []*corev1.Pod{pod}}} }
	elsewhere := func(pv *corev1.PersistentVolume) []wanted { return []wanted{{pv, []*corev1.Pod{pod}, "m"}} }
	of := func(a ...*storagev1.VolumeAttachment) []*storagev1.VolumeAttachment { return a }
	inUse := func(s *state) { s.node.Status.VolumesInUse = []corev1.UniqueVolumeName{uniqueName(pv)} }
	notReady := func(s *state) { inUse(s); s.node.Status.Conditions = nil }
	deleted := func(s *state) { s.node = nil }
	lost := func(change func(*state)) func(*state) { // without the PersistentVolume
		return func(s *state) { s.volumes = nil; change(s) }
	}
	replaced := func(by *corev1.PersistentVolume) func(*state) { // by one of the same name
		return func(s *state) { inUse(s); s.volumes = map[string]*corev1.PersistentVolume{"pv": by} }
	}
	mine := attachmentOf(pv, "n", attached)
	for _, test := range []struct {
		name   string
		state  state
		change func(*state)
		want   string
	}{
		{"a volume of a pod is attached", state{wanted: uses(pv)}, nil, "create n"},
		{"then its driver works", state{wanted: uses(pv), attachments: of(attachmentOf(pv, "n", nil))}, nil, ""},
		{"until it is reported", state{wanted: uses(pv), attachments: of(mine)}, nil, "attached kubernetes.io/csi/d^pv, Normal SuccessfulAttachVolume"},
		{"once", state{wanted: uses(pv), attachments: of(mine)}, func(s *state) {
			s.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: uniqueName(pv)}}
		}, "attached kubernetes.io/csi/d^pv"},
		{"the driver's error is one of the pod", state{wanted: uses(pv), attachments: of(attachmentOf(pv, "n", func(a *storagev1.VolumeAttachment) {
			a.Status.AttachError = &storagev1.VolumeError{Message: "no"}
		}))}, nil, "Warning FailedAttachVolume"},
		{"a volume that another node has waits", state{wanted: elsewhere(pv)}, nil, "Warning FailedAttachVolume"},
		{"unless several nodes may have it", state{wanted: elsewhere(shared)}, nil, "create n"},
		{"an attachment that ends is waited for", state{wanted: uses(pv), attachments: of(attachmentOf(pv, "n", func(a *storagev1.VolumeAttachment) {
			a.DeletionTimestamp = &metav1.Time{}
		}))}, nil, ""},
		{"a volume that no pod uses is detached", state{attachments: of(mine)}, nil, "delete n"},
		{"unless another than this controller attached it", state{attachments: of(attachmentOf(pv, "n", func(a *storagev1.VolumeAttachment) { a.Name = "backup" }))}, nil, ""},
		{"but not while the node uses it", state{attachments: of(mine)}, inUse, "attached kubernetes.io/csi/d^pv, unused 1"},
		{"a node that is not ready gets six minutes", state{attachments: of(mine)}, notReady, "attached kubernetes.io/csi/d^pv, unused 1, after 6m0s"},
		{"and no more", state{attachments: of(mine), since: map[string]time.Time{mine.Name: now.Add(-6 * time.Minute)}}, notReady, "delete n, unused 1"},
		{"unless volumes are not detached by force", state{noForce: true, attachments: of(mine), since: map[string]time.Time{mine.Name: now.Add(-6 * time.Minute)}}, notReady, "attached kubernetes.io/csi/d^pv, unused 1"},
		{"also when the node was deleted", state{noForce: true, attachments: of(mine), since: map[string]time.Time{mine.Name: now.Add(-6 * time.Minute)}}, deleted, "attached kubernetes.io/csi/d^pv, unused 1"},
		{"one that is out of service none", state{attachments: of(mine)}, func(s *state) {
			inUse(s)
			s.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}, "delete n"},
		{"also if volumes are not detached by force", state{noForce: true, attachments: of(mine)}, func(s *state) {
			inUse(s)
			s.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}, "delete n"},
		{"pods of a node that was deleted keep their volumes", state{wanted: uses(pv), attachments: of(mine)}, deleted, ""},
		{"but get no others", state{wanted: uses(pv)}, deleted, ""},
		{"when they are gone, the node may still use the volumes for six minutes", state{attachments: of(mine)}, deleted, "attached kubernetes.io/csi/d^pv, unused 1, after 6m0s"},
		{"and a node that was deleted no longer", state{attachments: of(mine), since: map[string]time.Time{mine.Name: now.Add(-6 * time.Minute)}}, deleted, "delete n, unused 1"},
		{"a volume without a PersistentVolume is detached", state{attachments: of(mine)}, lost(func(s *state) {
			s.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^other", "kubernetes.io/csi/e^pv"}
		}), "delete n"},
		{"but not while the node uses it", state{attachments: of(mine)}, lost(inUse), "attached kubernetes.io/csi/d^pv, unused 1"},
		{"nor one of an in-tree driver", state{attachments: of(mine)}, replaced(&corev1.PersistentVolume{}), "attached kubernetes.io/csi/d^pv, unused 1"},
		{"nor one whose PersistentVolume was replaced", state{attachments: of(mine)}, replaced(volumeOf("other", corev1.ReadWriteOnce)), "attached kubernetes.io/csi/d^pv, unused 1"},
		{"unless the node is not ready for six minutes", state{attachments: of(mine), since: map[string]time.Time{mine.Name: now.Add(-6 * time.Minute)}}, lost(notReady), "delete n, unused 1"},
		{"or was deleted", state{attachments: of(mine)}, lost(deleted), "unused 1, after 6m0s"},
		{"an attachment without a persistent volume is its creator's", state{attachments: of(attachmentOf(pv, "n", func(a *storagev1.VolumeAttachment) {
			a.Spec.Source = storagev1.VolumeAttachmentSource{}
		}))}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.state
			s.name, s.now, s.volumes = "n", now, map[string]*corev1.PersistentVolume{"pv": pv}
			s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			if test.change != nil {
				test.change(&s)
			}
			if got := summary(decide(s)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// summary returns what a plan does.
func summary(p plan) string {
	var got []string
	for _, c := range p.create {
		got = append(got, "create "+c.attachment.Spec.NodeName)
	}
	for _, a := range p.delete {
		got = append(got, "delete "+a.Spec.NodeName)
	}
	for _, v := range p.attached {
		got = append(got, "attached "+string(v.Name))
	}
	for _, e := range p.events {
		got = append(got, e.kind+" "+e.reason)
	}
	if len(p.unused) > 0 {
		got = append(got, fmt.Sprint("unused ", len(p.unused)))
	}
	if p.after > 0 {
		got = append(got, "after "+p.after.String())
	}
	return strings.Join(got, ", ")
}

func TestTheStatusKeepsVolumesOfOthers(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{{Name: "example.com/x"}, {Name: "kubernetes.io/csi/d^old"}}}}
	got := status(node, []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^new"}})
	if want := []corev1.AttachedVolume{{Name: "example.com/x"}, {Name: "kubernetes.io/csi/d^new"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAPodNeedsItsVolumesUntilItHasEnded(t *testing.T) {
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	stopped := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	waiting := []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	deleted := metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}
	for _, test := range []struct {
		name string
		pod  corev1.Pod
		want bool
	}{
		{"it runs", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: running}}, false},
		{"it has succeeded", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, true},
		{"it is being deleted and runs", corev1.Pod{ObjectMeta: deleted, Status: corev1.PodStatus{ContainerStatuses: running}}, false},
		{"it is being deleted and has stopped", corev1.Pod{ObjectMeta: deleted, Status: corev1.PodStatus{ContainerStatuses: stopped}}, true},
		{"and its init container runs", corev1.Pod{ObjectMeta: deleted, Status: corev1.PodStatus{InitContainerStatuses: running, ContainerStatuses: waiting}}, false},
		{"and its sidecar runs", corev1.Pod{ObjectMeta: deleted, Status: corev1.PodStatus{InitContainerStatuses: running, ContainerStatuses: stopped}}, false},
		{"and an ephemeral container runs", corev1.Pod{ObjectMeta: deleted, Status: corev1.PodStatus{ContainerStatuses: stopped, EphemeralContainerStatuses: running}}, false},
		{"and its node has not reported it", corev1.Pod{ObjectMeta: deleted}, false},
	} {
		if got := ended(&test.pod); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
