package servicecidr

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/servicerange"
)

var now = time.Unix(1_800_000_000, 0)

// cidr returns a ServiceCIDR with the finalizer, whose deletion was requested some seconds
// ago; of a negative number it was not.
func cidr(name string, deleted int, ranges ...string) networkingv1.ServiceCIDR {
	o := networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{finalizer}}}
	o.Spec.CIDRs = ranges
	if deleted >= 0 {
		o.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Duration(deleted) * time.Second)}
	}
	return o
}

func address(name, manager string) networkingv1.IPAddress {
	return networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: manager}}}
}

func TestAServiceCIDRStaysWhileAddressesAreInNoOther(t *testing.T) {
	const late = 10
	used := []networkingv1.IPAddress{address("10.1.0.9", servicerange.Manager)}
	for _, test := range []struct {
		rule      string
		object    networkingv1.ServiceCIDR
		others    []networkingv1.ServiceCIDR
		addresses []networkingv1.IPAddress
		want      string
	}{
		{rule: "a new one gets the finalizer", object: networkingv1.ServiceCIDR{}, want: "finalize ready"},
		{rule: "one with the finalizer is ready", object: cidr("a", -1, "10.1.0.0/24"), want: "ready"},
		{rule: "a deleted one without addresses goes", object: cidr("a", late, "10.1.0.0/24"), want: "release"},
		{rule: "but not before API servers know", object: cidr("a", late-1, "10.1.0.0/24"), want: "wait"},
		{rule: "one with addresses stays", object: cidr("a", late, "10.1.0.0/24"), addresses: used, want: "terminating"},
		{rule: "one whose addresses are of another manager goes", object: cidr("a", late, "10.1.0.0/24"),
			addresses: []networkingv1.IPAddress{address("10.1.0.9", "gateway")}, want: "release"},
		{rule: "one whose addresses are elsewhere goes", object: cidr("a", late, "10.1.0.0/24"),
			addresses: []networkingv1.IPAddress{address("10.2.0.9", servicerange.Manager)}, want: "release"},
		{rule: "one within another goes", object: cidr("a", late, "10.1.0.0/24"), addresses: used,
			others: []networkingv1.ServiceCIDR{cidr("b", -1, "10.1.0.0/16")}, want: "release"},
		{rule: "one whose addresses are all in another goes", object: cidr("a", late, "10.1.0.0/16"), addresses: used,
			others: []networkingv1.ServiceCIDR{cidr("b", -1, "10.1.0.0/24")}, want: "release"},
		{rule: "one of which another has a part without the addresses stays", object: cidr("a", late, "10.1.0.0/16"), addresses: used,
			others: []networkingv1.ServiceCIDR{cidr("b", -1, "10.1.1.0/24")}, want: "terminating"},
		{rule: "one that another has, which is being deleted too, stays", object: cidr("a", late, "10.1.0.0/24"), addresses: used,
			others: []networkingv1.ServiceCIDR{cidr("b", late, "10.1.0.0/24")}, want: "terminating"},
		{rule: "one of two families of which another has one stays", object: cidr("a", late, "fd00::/120", "10.1.0.0/24"), addresses: used,
			others: []networkingv1.ServiceCIDR{cidr("b", -1, "fd00::/64")}, want: "terminating"},
	} {
		next := decide(&test.object, append(test.others, test.object), test.addresses, now)
		got := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "ready", metav1.ConditionFalse: "terminating"}[next.ready.Status]
		switch {
		case next.finalize:
			got = "finalize " + got
		case next.release:
			got += "release"
		case next.after > 0:
			got += "wait"
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.rule, got, test.want)
		}
	}
}

func TestADeletedServiceCIDRGoesWithItsLastAddress(t *testing.T) {
	object, used := cidr("a", -1, "10.1.0.0/24"), address("10.1.0.9", servicerange.Manager)
	object.Finalizers = nil
	c := fake.NewClientBuilder().WithObjects(&object, &used).WithStatusSubresource(&object).Build()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := &reconciler{client: c, live: c, clock: clock, events: record.NewFakeRecorder(1)}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&object)}
	sync := func() time.Duration {
		t.Helper()
		result, err := r.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	expect := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		if err := c.Get(t.Context(), request.NamespacedName, &object); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(object.Status.Conditions, "Ready")
		if ready == nil || ready.Status != status || ready.Reason != reason {
			t.Errorf("the condition is %+v, want %s %s", ready, status, reason)
		}
	}
	sync()
	expect(metav1.ConditionTrue, "")
	if err := c.Delete(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	if len(r.deletedOf(t.Context(), &used)) != 1 || len(r.deleted(t.Context(), nil)) != 1 {
		t.Error("its addresses and other ServiceCIDRs do not enqueue it")
	}
	sync()
	expect(metav1.ConditionFalse, "Terminating")
	if err := c.Delete(t.Context(), &used); err != nil {
		t.Fatal(err)
	}
	if after := sync(); after <= 0 || after > deletionGrace {
		t.Errorf("it is reconciled again after %v", after)
	}
	clock.SetTime(clock.Now().Add(deletionGrace + time.Second))
	sync()
	if err := c.Get(t.Context(), request.NamespacedName, &object); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	sync()
}
