package bootstrap

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

func TestTheDefaultServiceCIDRHasTheRangesOfTheFlag(t *testing.T) {
	condition := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: "Broken", Message: "a user wrote it"}}
	}
	for _, test := range []struct {
		rule  string
		begin *networkingv1.ServiceCIDR
		cidrs string
		want  string // ranges and condition
		event string // its reason
	}{
		{rule: "it is created", cidrs: "10.0.0.0/24", want: "10.0.0.0/24 True"},
		{rule: "of two families", cidrs: "10.0.0.0/24 fd00::/120", want: "10.0.0.0/24 fd00::/120 True"},
		{rule: "one without a condition becomes ready", begin: &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}}},
			cidrs: "10.0.0.0/24", want: "10.0.0.0/24 True"},
		{rule: "a second family is added", begin: &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}}},
			cidrs: "10.0.0.0/24 fd00::/120", want: "10.0.0.0/24 fd00::/120 True"},
		{rule: "other ranges stay", begin: &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}}},
			cidrs: "10.0.0.0/24", want: "10.9.0.0/24", event: "KubernetesDefaultServiceCIDRInconsistent"},
		{rule: "a condition of a user stays", begin: &networkingv1.ServiceCIDR{
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}}, Status: networkingv1.ServiceCIDRStatus{Conditions: condition(metav1.ConditionFalse)},
		}, cidrs: "10.0.0.0/24", want: "10.0.0.0/24 False", event: "Broken"},
		{rule: "one that is being deleted stays", begin: &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}, Finalizers: []string{"f"}}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.0.0.0/24"}},
		}, cidrs: "10.0.0.0/24", want: "10.0.0.0/24"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			client := fake.NewClientset()
			if test.begin != nil {
				test.begin.Name = serviceCIDRName
				if err := client.Tracker().Add(test.begin); err != nil {
					t.Fatal(err)
				}
			}
			recorder := events.NewFakeRecorder(10)
			k := newServiceCIDRKeeper(ServiceCIDR{
				Client: client.NetworkingV1(), CIDRs: strings.Fields(test.cidrs), Clock: clock.RealClock{}, Events: recorder,
				Seen: func(*networkingv1.ServiceCIDR) bool { return true },
			})
			for range 3 { // after the first, at most one write is left
				if err := k.ensure(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := k.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			object, err := client.NetworkingV1().ServiceCIDRs().Get(t.Context(), serviceCIDRName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(object.Spec.CIDRs, " ")
			if ready := meta.FindStatusCondition(object.Status.Conditions, "Ready"); ready != nil {
				got += " " + string(ready.Status)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if n := len(recorder.Events); (test.event != "") != (n == 1) || n == 1 && !strings.Contains(<-recorder.Events, test.event) {
				t.Errorf("%d events, want %q once", n, test.event)
			}
		})
	}
}
