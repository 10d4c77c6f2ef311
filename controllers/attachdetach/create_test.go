package attachdetach

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// newSharedCluster returns a cluster with a pod on a second node, "m", that uses the same
// volume. The controller's requests go through funcs.
func newSharedCluster(t *testing.T, funcs interceptor.Funcs) *cluster {
	t.Helper()
	c := newCluster(t, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second"}, Spec: *c.pod.Spec.DeepCopy()}
	pod.Spec.NodeName = "m"
	for _, obj := range []client.Object{pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{attachAnnotation: "true"}}}} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	c.client = interceptor.NewClient(c.Client.(client.WithWatch), funcs)
	return c
}

// attachedTo returns the names of the nodes that attachments are to.
func (c *cluster) attachedTo(t *testing.T) string {
	t.Helper()
	var nodes []string
	for _, a := range c.attachments(t) {
		nodes = append(nodes, a.Spec.NodeName)
	}
	slices.Sort(nodes)
	return strings.Join(nodes, " ")
}

// multiAttachEvents returns how many events about a volume that another node has were
// recorded since the last call.
func (c *cluster) multiAttachEvents() int {
	found := 0
	for {
		select {
		case e := <-c.recorder.(*record.FakeRecorder).Events:
			if strings.HasPrefix(e, "Warning FailedAttachVolume Multi-Attach error") {
				found++
			}
		default:
			return found
		}
	}
}

func TestWorkersThatFindNoAttachmentAtOnceAttachAnExclusiveVolumeToOneNode(t *testing.T) {
	var c *cluster
	var lists atomic.Int32
	var planned sync.WaitGroup // until both workers have found that no node has the volume
	planned.Add(2)
	c = newSharedCluster(t, interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := w.List(ctx, list, opts...)
			var o client.ListOptions
			o.ApplyOptions(opts)
			if _, ok := list.(*storagev1.VolumeAttachmentList); ok && o.FieldSelector.String() == attachmentsByAttacher().Name+"=d" && lists.Add(1) <= 2 {
				planned.Done()
				planned.Wait()
			}
			return err
		},
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if c.exclusives.mu.TryLock() {
				c.exclusives.mu.Unlock()
				t.Error("another worker may list attachments while one is created")
			}
			return w.Create(ctx, obj, opts...)
		},
	})
	var workers sync.WaitGroup
	for _, node := range []string{"n", "m"} {
		workers.Go(func() {
			if _, err := c.Reconcile(t.Context(), node); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	if got := c.attachedTo(t); got != "n" && got != "m" {
		t.Errorf("the volume is attached to %q, want one node", got)
	}
	if got := c.multiAttachEvents(); got != 1 {
		t.Errorf("%d events about a volume that another node has, want 1", got)
	}
}

func TestAnExclusiveVolumeWhoseAttachmentIsUncertainIsNotAttachedToAnotherNode(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for _, test := range []struct {
		name string
		// made reports whether the API server created the attachment to n whose response
		// was lost; again is its answer when m's worker repeats the creation.
		made  bool
		again error
		want  string // the nodes with attachments
		event int
		fails bool
	}{
		{"it was created", true, nil, "n", 1, false},
		{"it was not created", false, nil, "n", 1, false},
		{"there is no response again", false, errRefused, "", 0, true},
		{"the API server is overloaded", false, apierrors.NewTooManyRequests("", 1), "", 0, true},
		{"it is forbidden", false, forbidden, "m", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := []error{errRefused, test.again}
			stale := true // the cache does not have the attachment to n
			c := newSharedCluster(t, interceptor.Funcs{
				List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					err := w.List(ctx, list, opts...)
					if all, ok := list.(*storagev1.VolumeAttachmentList); ok && stale {
						all.Items = slices.DeleteFunc(all.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == "n" })
					}
					return err
				},
				Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					if len(answers) == 0 {
						return w.Create(ctx, obj, opts...)
					}
					answer, first := answers[0], len(answers) == 2
					answers = answers[1:]
					if answer == nil || first && test.made {
						if err := w.Create(ctx, obj, opts...); err != nil {
							return err
						}
					}
					return answer
				},
			})
			if _, err := c.Reconcile(t.Context(), "n"); err == nil {
				t.Fatal("a lost response is no error")
			}
			if _, err := c.Reconcile(t.Context(), "m"); (err != nil) != test.fails {
				t.Errorf("the sync of the other node returns %v", err)
			}
			if got := c.attachedTo(t); got != test.want {
				t.Errorf("the volume is attached to %q, want %q", got, test.want)
			}
			if got := c.multiAttachEvents(); got != test.event {
				t.Errorf("%d events about a volume that another node has, want %d", got, test.event)
			}
			if test.want != "n" {
				return
			}
			stale = false
			c.sync(t)
			if err := c.Delete(t.Context(), c.pod); err != nil {
				t.Fatal(err)
			}
			c.sync(t)
			if _, err := c.Reconcile(t.Context(), "m"); err != nil {
				t.Fatal(err)
			}
			if got := c.attachedTo(t); got != "m" {
				t.Errorf("after the first pod's end the volume is attached to %q, want m", got)
			}
		})
	}
}

// useSecondVolume lets the pod on m use another PersistentVolume, "second", which is the same
// volume of the driver.
func (c *cluster) useSecondVolume(t *testing.T) {
	t.Helper()
	pv := volumeOf("pv", corev1.ReadWriteOnce)
	pv.Name = "second"
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "second", UID: "2"}
	second := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "second"}, second); err != nil {
		t.Fatal(err)
	}
	second.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "second"
	for _, err := range []error{
		c.Create(t.Context(), pv),
		c.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second", UID: "2"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "second"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}),
		c.Update(t.Context(), second),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// expectAttached syncs both nodes, and compares the nodes with attachments and the number of
// events about a volume that another node has.
func (c *cluster) expectAttached(t *testing.T, want string, events int) {
	t.Helper()
	for _, node := range []string{"n", "m"} {
		if _, err := c.Reconcile(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.attachedTo(t); got != want {
		t.Errorf("the volume is attached to %q, want %q", got, want)
	}
	if got := c.multiAttachEvents(); got != events {
		t.Errorf("%d events about a volume that another node has, want %d", got, events)
	}
}

// Several PersistentVolumes may be the same volume of a driver.
func TestAnExclusiveVolumeOfTwoPersistentVolumesIsAttachedToOneNode(t *testing.T) {
	c := newSharedCluster(t, interceptor.Funcs{})
	c.useSecondVolume(t)
	c.expectAttached(t, "n", 1)
	if err := c.Delete(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	c.expectAttached(t, "m", 0)
}

// The attachment to n outlasts its PersistentVolume, which is deleted or replaced by one of
// the same name, while n still uses the volume.
func TestAnExclusiveVolumeStaysWithTheNodeThatUsesItWithoutItsPersistentVolume(t *testing.T) {
	for name, replaced := range map[string]bool{"deleted": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			c := newSharedCluster(t, interceptor.Funcs{})
			c.useSecondVolume(t)
			c.expectAttached(t, "n", 1)
			pv := volumeOf("pv", corev1.ReadWriteOnce)
			node := c.node(t)
			node.Status.VolumesInUse = []corev1.UniqueVolumeName{uniqueName(pv)}
			for _, err := range []error{c.Status().Update(t.Context(), node), c.Delete(t.Context(), pv), c.Delete(t.Context(), c.pod)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if replaced {
				pv.Spec.CSI.VolumeHandle = "other"
				if err := c.Create(t.Context(), pv); err != nil {
					t.Fatal(err)
				}
			}
			c.expectAttached(t, "n", 1)
			a := c.attachments(t)[0]
			if nodes := (watches{c.Client}).ofAttachment(t.Context(), &a); !slices.Contains(nodes, "m") {
				t.Errorf("the end of the attachment wakes %v, not m, which waits for it", nodes)
			}
			node = c.node(t)
			node.Status.VolumesInUse = nil
			if err := c.Status().Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			c.expectAttached(t, "m", 0)
		})
	}
}
