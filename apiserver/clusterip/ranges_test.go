package clusterip

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func cidrs(text ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(text))
	for i := range text {
		all[i] = netip.MustParsePrefix(text[i])
	}
	return all
}

// rangeObject returns a ServiceCIDR of an age in minutes.
func rangeObject(name string, age int, status metav1.ConditionStatus, ranges ...string) *networkingv1.ServiceCIDR {
	o := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(10000, 0).Add(-time.Duration(age) * time.Minute))},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: ranges},
	}
	if status != "" {
		o.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: status}}
	}
	return o
}

func TestAddressesComeFromReadyRanges(t *testing.T) {
	deleted := rangeObject("a", 1, metav1.ConditionTrue, "10.1.0.0/24")
	deleted.DeletionTimestamp = &metav1.Time{}
	for _, test := range []struct {
		rule    string
		objects []*networkingv1.ServiceCIDR
		want    []netip.Prefix
	}{
		{"none without objects", nil, nil},
		{"the flag's first, then the oldest", []*networkingv1.ServiceCIDR{
			rangeObject("b", 1, metav1.ConditionTrue, "10.3.0.0/24"), rangeObject("a", 2, metav1.ConditionTrue, "10.2.0.0/24", "fd01::/120"),
			rangeObject("kubernetes", 0, metav1.ConditionTrue, "10.0.0.0/24", "fd00::/120"),
		}, cidrs("10.0.0.0/24", "fd00::/120", "10.2.0.0/24", "fd01::/120", "10.3.0.0/24")},
		{"not of one without a status", []*networkingv1.ServiceCIDR{rangeObject("a", 1, "", "10.1.0.0/24")}, nil},
		{"not of one that is not ready", []*networkingv1.ServiceCIDR{rangeObject("a", 1, metav1.ConditionFalse, "10.1.0.0/24")}, nil},
		{"not of one that is being deleted", []*networkingv1.ServiceCIDR{deleted}, nil},
		{"of one that another object keeps", []*networkingv1.ServiceCIDR{deleted, rangeObject("b", 1, metav1.ConditionTrue, "10.1.0.0/24")}, cidrs("10.1.0.0/24")},
		{"each once", []*networkingv1.ServiceCIDR{
			rangeObject("a", 1, metav1.ConditionTrue, "10.1.0.0/24"), rangeObject("b", 1, metav1.ConditionTrue, "10.1.0.0/24"),
		}, cidrs("10.1.0.0/24")},
	} {
		if got := readyRanges(test.objects, cidrs("10.0.0.0/24", "fd00::/120")); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.rule, got, test.want)
		}
	}
}

func TestRangesFollowTheObjects(t *testing.T) {
	object := rangeObject("kubernetes", 1, metav1.ConditionFalse, "10.0.0.0/24")
	object.ResourceVersion = "7"
	r := newRanges(t, nil, object)
	if len(r.Ready()) > 0 || !r.Contain(netip.MustParseAddr("10.0.0.1")) || r.Contain(netip.MustParseAddr("10.0.0.0")) {
		t.Errorf("ready are %v", r.Ready())
	}
	newer := object.DeepCopy()
	newer.ResourceVersion = "8"
	if r.Sees(newer) || r.Sees(rangeObject("other", 1, "")) {
		t.Error("a version is seen that the informer does not have")
	}
}
