package deployment

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/deployment/rollout"
	"svc.dev/svc/controllers/index"
)

var (
	sets = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func TestWhatBecomesOfACreationThatFails(t *testing.T) {
	terminating := apierrors.NewForbidden(sets, "web", errors.New("namespace terminates"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		rule string
		fail error
		// taken is the owner of the object with the name: "" for none, the deployment
		// itself, or another one.
		taken string
		// fails reports whether the deployment is requeued with an error.
		fails      bool
		condition  string
		event      string
		collisions int32
	}{
		{rule: "it succeeds", condition: "NewReplicaSetCreated", event: "Normal ScalingReplicaSet Scaled up replica set web-"},
		{rule: "refused", fail: apierrors.NewForbidden(sets, "web-x", errors.New("quota")), fails: true,
			condition: rollout.ReplicaSetCreateError, event: `Warning ReplicaSetCreateError Failed to create new replica set "web-`},
		{rule: "the namespace goes", fail: terminating},
		{rule: "the answer to an earlier creation was lost", taken: "web", fails: true},
		{rule: "the name is taken", taken: "other", fails: true, collisions: 1},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			d := deployment()
			objects := []client.Object{d}
			if tt.taken != "" {
				objects = append(objects, takenSet(d, tt.taken))
			}
			r, recorder := reconcilerOf(t, tt.fail, objects...)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
			if (err != nil) != tt.fails {
				t.Errorf("error %v", err)
			}
			if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			if got := ptr.Deref(d.Status.CollisionCount, 0); got != tt.collisions {
				t.Errorf("%d collisions", got)
			}
			reason := ""
			for _, c := range d.Status.Conditions {
				if c.Type == appsv1.DeploymentProgressing {
					reason = c.Reason
				}
			}
			if reason != tt.condition {
				t.Errorf("condition %q", reason)
			}
			event := ""
			if len(recorder.Events) > 0 {
				event = <-recorder.Events
			}
			if tt.event == "" && event != "" || !strings.HasPrefix(event, tt.event) {
				t.Errorf("event %q", event)
			}
		})
	}
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas:                ptr.To[int32](2),
			ProgressDeadlineSeconds: ptr.To[int32](600),
			Selector:                &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

// takenSet has the name of the deployment's new replica set.
func takenSet(d *appsv1.Deployment, owner string) *appsv1.ReplicaSet {
	plan := rollout.Decide(rollout.State{Deployment: d, Now: noon})
	rs := plan.Actions[0].Set.DeepCopy()
	rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: owner, UID: "other", Controller: ptr.To(true)}}
	if owner == d.Name {
		rs.OwnerReferences[0].UID = d.UID
	}
	return rs
}

// reconcilerOf works on objects. Its cache has no replica sets yet, and creations
// fail with fail.
func reconcilerOf(t *testing.T, fail error, objects ...client.Object) (*reconciler, *record.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	byController := index.ByController(&appsv1.ReplicaSet{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1.Deployment{}).
		WithIndex(byController.Object, byController.Name, byController.Values).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return nil
			},
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if fail != nil {
					return fail
				}
				return c.Create(ctx, obj, opts...)
			},
		}).Build()
	recorder := record.NewFakeRecorder(10)
	return &reconciler{client: c, live: c, recorder: recorder, gvk: appsv1.SchemeGroupVersion.WithKind("Deployment"), now: func() time.Time { return noon }}, recorder
}
