package resourcepoolstatusrequest

import (
	"context"
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/versions"
)

var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// trial reconciles one request.
type trial struct {
	reconciler
	t       *testing.T
	request *resourcev1alpha3.ResourcePoolStatusRequest
}

func newTrial(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *trial {
	request := &resourcev1alpha3.ResourcePoolStatusRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", CreationTimestamp: metav1.NewTime(created)},
		Spec:       resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver},
	}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(request).WithObjects(append(objects, request)...).WithInterceptorFuncs(funcs).Build()
	return &trial{reconciler{client: c}, t, request}
}

// at reconciles the request at an age of it, and returns the request, or nil if it was deleted.
func (r *trial) at(age time.Duration) (*resourcev1alpha3.ResourcePoolStatusRequest, reconcile.Result) {
	r.t.Helper()
	r.now = func() time.Time { return created.Add(age) }
	key := client.ObjectKeyFromObject(r.request)
	result, err := r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		r.t.Fatal(err)
	}
	got := &resourcev1alpha3.ResourcePoolStatusRequest{}
	if err := r.client.Get(r.t.Context(), key, got); apierrors.IsNotFound(err) {
		return nil, result
	} else if err != nil {
		r.t.Fatal(err)
	}
	return got, result
}

func slice(count int64) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: count}, Devices: []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}},
	}}
}

func TestARequestIsAnsweredOnceAndDeletedAnHourLater(t *testing.T) {
	r := newTrial(t, interceptor.Funcs{}, slice(1))
	got, _ := r.at(0)
	if got.Status == nil || len(got.Status.Pools) != 1 || *got.Status.Pools[0].AvailableDevices != 2 {
		t.Fatalf("got %+v", got.Status)
	}
	if err := r.client.Delete(t.Context(), slice(1)); err != nil {
		t.Fatal(err)
	}
	if got, result := r.at(time.Minute); len(got.Status.Pools) != 1 || result.RequeueAfter != 59*time.Minute {
		t.Errorf("a minute later: %+v, %+v", got.Status, result)
	}
	if got, _ := r.at(time.Hour); got != nil {
		t.Errorf("an hour later: %+v", got)
	}
}

func TestARequestWithoutAnAnswerIsDeletedAfterADay(t *testing.T) {
	r := newTrial(t, interceptor.Funcs{}, slice(1))
	if got, _ := r.at(24 * time.Hour); got != nil {
		t.Errorf("got %+v", got)
	}
}

func TestARequestWaitsTenSecondsForTheSlicesOfAPool(t *testing.T) {
	r := newTrial(t, interceptor.Funcs{}, slice(2))
	if got, result := r.at(0); got.Status != nil || result.RequeueAfter != time.Second {
		t.Errorf("at once: %+v, %+v", got.Status, result)
	}
	if got, result := r.at(9500 * time.Millisecond); got.Status != nil || result.RequeueAfter != 500*time.Millisecond {
		t.Errorf("after 9.5 seconds: %+v, %+v", got.Status, result)
	}
	got, _ := r.at(10 * time.Second)
	if got.Status == nil || got.Status.Pools[0].ValidationError == nil || got.Status.Pools[0].TotalDevices != nil {
		t.Errorf("after 10 seconds: %+v", got.Status)
	}
}

func TestARuleMakesDevicesUnavailable(t *testing.T) {
	device := "gpu-0"
	r := newTrial(t, interceptor.Funcs{}, slice(1), &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &device}, Taint: resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule},
	}})
	r.rules = &versions.Client[resourcev1.DeviceTaintRule]{Client: r.client, Version: devicetaints.Rules[0]}
	if got, _ := r.at(0); *got.Status.Pools[0].UnavailableDevices != 1 || *got.Status.Pools[0].AvailableDevices != 1 {
		t.Errorf("got %+v", got.Status.Pools[0])
	}
}

func TestAnAnswerThatTheAPIServerRefusesIsAFailure(t *testing.T) {
	refused := 0
	r := newTrial(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
		if len(obj.(*resourcev1alpha3.ResourcePoolStatusRequest).Status.Pools) > 0 {
			refused++
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ResourcePoolStatusRequest"}, "r", field.ErrorList{field.Required(field.NewPath("status", "pools").Index(0).Child("generation"), "")})
		}
		return c.Status().Update(ctx, obj, opts...)
	}}, slice(1))
	got, _ := r.at(0)
	if refused != 1 || got.Status == nil || got.Status.Conditions[0].Type != "Failed" || !strings.Contains(got.Status.Conditions[0].Message, "status.pools[0].generation: Required value") {
		t.Errorf("refused %d times: %+v", refused, got.Status)
	}
}
