package devicetainteviction

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	devicesapi "svc.dev/svc/apis/devices"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/eviction"
	"svc.dev/svc/controllers/versions"
)

// started returns the reconcilers of a manager that has just started.
func started(c client.Client, version versions.Version[resourcev1.DeviceTaintRule], clock *clocktesting.FakeClock) *reconciler {
	reads := reader{client: c, rules: &versions.Client[resourcev1.DeviceTaintRule]{Client: c, Version: version}}
	return &reconciler{
		reader: reads, now: clock.Now, metrics: newMetrics(), evictor: eviction.New(c, record.NewFakeRecorder(10), clock.Now, reason),
		statuses: &statusReconciler{reader: reads, now: clock.Now, evicted: map[string]tally{}},
	}
}

func TestRuleEvictsPodsAndReportsIt(t *testing.T) {
	for i, version := range devicetaints.Rules {
		t.Run(fmt.Sprintf("version %d", i), func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(100, 0))
			rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "maintenance", UID: "r", Generation: 1}}
			rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{Device: new("gpu")}
			rule.Spec.Taint = resourcev1.DeviceTaint{Key: "m", Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.Unix(100, 0))}
			objects := []client.Object{version.Made(rule)}
			for _, name := range []string{"web", "patient"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "node"}}
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}
				claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
				allocated := resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: "node", Device: "gpu"}
				if name == "patient" {
					allocated.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: new(int64(60))}}
				}
				claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{allocated}}}
				claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{devicesapi.Consumer(pod)}
				objects = append(objects, pod, claim)
			}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}, version.Object).
				WithIndex(&resourcev1.ResourceSlice{}, slicesByPool().Name, slicesByPool().Values).Build()
			r := started(c, version, clock)
			sync := func(name string) reconcile.Result {
				t.Helper()
				result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "n", Name: name}})
				if err != nil {
					t.Fatal(err)
				}
				return result
			}
			status := func() string {
				t.Helper()
				if _, err := r.statuses.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "maintenance"}}); err != nil {
					t.Fatal(err)
				}
				rule, err := r.rules.Get(t.Context(), client.ObjectKey{Name: "maintenance"})
				if err != nil || len(rule.Status.Conditions) != 1 {
					t.Fatalf("%v, %+v", err, rule)
				}
				return rule.Status.Conditions[0].Reason + ": " + rule.Status.Conditions[0].Message
			}
			const two = "PodsPendingEviction: 2 pods need to be evicted in 1 namespace."
			if got := status(); got != two {
				t.Error(got)
			}
			sync("web")
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "web"}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
				t.Errorf("web is not evicted: %v", err)
			}
			if left := sync("patient").RequeueAfter; left != time.Minute {
				t.Errorf("patient is evicted after %v", left)
			}
			if got := status(); got != two {
				t.Errorf("at once: %s", got)
			}
			clock.Step(statusPeriod)
			if got := status(); got != "PodsPendingEviction: 1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller." {
				t.Error(got)
			}
			clock.Step(time.Minute)
			sync("patient")
			if got := status(); got != "Completed: 2 pods evicted since starting the controller." {
				t.Error(got)
			}
			r = started(c, version, clock)
			clock.Step(statusPeriod)
			if got := status(); got != "NotStarted: " {
				t.Errorf("after a restart: %s", got)
			}
		})
	}
}
