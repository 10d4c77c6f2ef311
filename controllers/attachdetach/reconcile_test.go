package attachdetach

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// cluster is an API with a pod on a node, whose volume a driver attaches.
type cluster struct {
	client.Client
	*reconciler
	pod   *corev1.Pod
	now   time.Time
	syncs int // that failed
}

var errRefused = errors.New("no connection")

// newCluster returns a cluster of which the write with the number fails.
func newCluster(t *testing.T, failing int) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), storagev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	pv := volumeOf("pv", corev1.ReadWriteOnce)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "1"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&corev1.Node{}, &storagev1.VolumeAttachment{}).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{attachAnnotation: "true"}}},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "1"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}, pv, pod)
	for _, i := range []controller.Index{index.PodsByNode(), index.PodsByClaim(), attachmentsByNode(), attachmentsByVolume(), attachmentsByAttacher(), volumesByHandle()} {
		builder = builder.WithIndex(i.Object, i.Name, i.Values)
	}
	writes := 0
	refused := func() bool { writes++; return writes == failing }
	c := &cluster{pod: pod, now: time.Unix(1e9, 0)}
	c.Client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if refused() {
				return errRefused
			}
			return w.Create(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, ok := obj.(*storagev1.VolumeAttachment); !ok {
				return w.Delete(ctx, obj, opts...)
			}
			if refused() {
				return errRefused
			}
			if node := c.node(t); node != nil && len(node.Status.VolumesAttached) > 0 {
				t.Errorf("write %d fails: the volume is detached while the node reports it as attached", failing)
			}
			return w.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if refused() {
				return errRefused
			}
			return w.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	}).Build()
	c.restart()
	return c
}

// restart replaces the controller by one without its memory.
func (c *cluster) restart() {
	c.reconciler = &reconciler{client: c.Client, live: c.Client, recorder: record.NewFakeRecorder(100), now: func() time.Time { return c.now }, unused: newUnused(), exclusives: &exclusives{}}
}

// sync syncs the node; after a failure again, by a controller that was restarted.
func (c *cluster) sync(t *testing.T) {
	t.Helper()
	if _, err := c.Reconcile(t.Context(), "n"); err != nil {
		c.syncs++
		c.restart()
		if _, err := c.Reconcile(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
	}
}

// node returns the node, nil if it was deleted.
func (c *cluster) node(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return nil
	}
	return node
}

func (c *cluster) attachments(t *testing.T) []storagev1.VolumeAttachment {
	t.Helper()
	var list storagev1.VolumeAttachmentList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// attach lets the controller request the attachment, and the driver make it.
func (c *cluster) attach(t *testing.T) {
	t.Helper()
	c.sync(t)
	all := c.attachments(t)
	if len(all) != 1 {
		t.Fatalf("attachments %v, want one", all)
	}
	all[0].Status.Attached = true
	if err := c.Status().Update(t.Context(), &all[0]); err != nil {
		t.Fatal(err)
	}
	c.sync(t)
}

func TestAVolumeIsAttachedAndDetachedAfterAFailureAtAnyWrite(t *testing.T) {
	const writes = 4                  // the attachment, the node's status twice, and the end of the attachment
	for failing := range writes + 1 { // 0 is none
		c := newCluster(t, failing)
		c.attach(t)
		if attached := c.node(t).Status.VolumesAttached; len(attached) != 1 {
			t.Errorf("write %d fails: the node has %v", failing, attached)
		}
		if err := c.Delete(t.Context(), c.pod); err != nil {
			t.Fatal(err)
		}
		c.sync(t)
		if attached := c.node(t).Status.VolumesAttached; len(attached) > 0 || len(c.attachments(t)) > 0 {
			t.Errorf("write %d fails: the node still has %v, and there are %v", failing, attached, c.attachments(t))
		}
		if want := min(failing, 1); c.syncs != want {
			t.Errorf("write %d fails: %d syncs failed, want %d", failing, c.syncs, want)
		}
	}
}

func TestAPodOfADeletedNodeKeepsItsVolume(t *testing.T) {
	c := newCluster(t, 0)
	c.attach(t)
	if err := c.Delete(t.Context(), c.node(t)); err != nil {
		t.Fatal(err)
	}
	expect := func(want int, when string) {
		t.Helper()
		c.sync(t)
		if got := len(c.attachments(t)); got != want {
			t.Fatalf("%d attachments %s, want %d", got, when, want)
		}
	}
	c.now = c.now.Add(time.Hour)
	expect(1, "while the pod may run")
	if err := c.Delete(t.Context(), c.pod); err != nil {
		t.Fatal(err)
	}
	expect(1, "when the pod is deleted")
	c.now = c.now.Add(forceAfter)
	expect(0, "six minutes later")
}

func TestTheAnnotationOfANodeCountsWhateverItsValue(t *testing.T) {
	c := newCluster(t, 0)
	for _, step := range []struct {
		annotations map[string]string
		want        int
	}{{nil, 0}, {map[string]string{attachAnnotation: "false"}, 1}} {
		node := c.node(t)
		node.Annotations = step.annotations
		if err := c.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		c.sync(t)
		if got := len(c.attachments(t)); got != step.want {
			t.Errorf("annotations %v: %d attachments, want %d", step.annotations, got, step.want)
		}
	}
}

// behind is a cache that has an earlier state of the node.
type behind struct {
	client.Client
	node *corev1.Node
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if node, ok := obj.(*corev1.Node); ok {
		b.node.DeepCopyInto(node)
		return nil
	}
	return b.Client.Get(ctx, key, obj, opts...)
}

func TestAVolumeIsDetachedOnlyIfTheNodesStateAtTheAPIServerAllowsIt(t *testing.T) {
	inUse := func(n *corev1.Node) { n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^pv"} }
	for _, test := range []struct {
		name   string
		cached func(*corev1.Node) // changes the cache's state
		change func(*corev1.Node) // changes the API server's state, deletes the node if nil
		want   int                // attachments
	}{
		{"the cache has it", func(*corev1.Node) {}, func(*corev1.Node) {}, 0},
		{"the node uses the volume", func(*corev1.Node) {}, inUse, 1},
		{"another controller has reported the volume", func(n *corev1.Node) { n.Status.VolumesAttached = nil }, func(*corev1.Node) {}, 1},
		{"the node is not out of service any more", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}, inUse, 1},
		{"the node was deleted, and may still use the volume", func(*corev1.Node) {}, nil, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, 0)
			c.attach(t)
			if err := c.Client.Delete(t.Context(), c.pod); err != nil {
				t.Fatal(err)
			}
			node := c.node(t)
			cached := node.DeepCopy()
			test.cached(cached)
			var err error
			if test.change == nil {
				err = c.Client.Delete(t.Context(), node)
			} else {
				test.change(node)
				err = c.Status().Update(t.Context(), node)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.client = behind{c.Client, cached}
			c.sync(t)
			if got := len(c.attachments(t)); got != test.want {
				t.Fatalf("%d attachments, want %d", got, test.want)
			}
			c.client = c.Client
			c.sync(t)
			if node := c.node(t); node != nil && len(node.Status.VolumesInUse) != len(node.Status.VolumesAttached) {
				t.Errorf("the node uses %v, and has %v", node.Status.VolumesInUse, node.Status.VolumesAttached)
			}
		})
	}
}
