package claimstatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"
)

// permissions are "VERB SUBRESOURCE NAMESPACE/NAME" of resourceclaims.
type permissions []string

func (p permissions) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	permission := a.GetVerb() + " " + a.GetSubresource() + " " + a.GetNamespace() + "/" + a.GetName()
	if a.IsResourceRequest() && a.GetAPIGroup() == "resource.k8s.io" && a.GetResource() == "resourceclaims" && slices.Contains(p, permission) {
		return authorizer.DecisionAllow, "", errors.New("a role is missing")
	}
	return authorizer.DecisionNoOpinion, "no role", nil
}

// update asks the guard about an update of the claim ns/c. It returns the causes of the refusal.
func update(t *testing.T, p permissions, who user.Info, verb, subresource string, status, old resourcev1.ResourceClaimStatus) []string {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	ctx := request.WithRequestInfo(request.WithUser(t.Context(), who), &request.RequestInfo{
		IsResourceRequest: true, Verb: verb, APIGroup: "resource.k8s.io", APIVersion: "v1beta1",
		Resource: "resourceclaims", Subresource: subresource, Namespace: "ns", Name: "c",
	})
	err := Guard(admission.NewChainHandler(), p).(admission.ValidationInterface).Validate(ctx, admission.NewAttributesRecord(
		&resourcev1.ResourceClaim{ObjectMeta: meta, Status: status}, &resourcev1.ResourceClaim{ObjectMeta: meta, Status: old},
		resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), "ns", "c", resourcev1.SchemeGroupVersion.WithResource("resourceclaims"),
		subresource, admission.Update, nil, false, who), nil)
	if err == nil {
		return nil
	}
	var refusal *apierrors.StatusError
	if !errors.As(err, &refusal) || !apierrors.IsInvalid(err) || !strings.HasPrefix(err.Error(), `ResourceClaim.resource.k8s.io "c" is invalid: `) {
		t.Fatalf("refused with %v", err)
	}
	var causes []string
	for _, c := range refusal.ErrStatus.Details.Causes {
		causes = append(causes, c.Field+": "+c.Message)
	}
	return causes
}

// on is an allocation on nodes by a field.
func on(key string, nodes ...string) *resourcev1.AllocationResult {
	return &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: nodes}}},
	}}}
}

// fromNode is the service account of a driver with the token of a pod on a node.
func fromNode(name string) user.Info {
	return &user.DefaultInfo{Name: "system:serviceaccount:drivers:driver", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {name}}}
}

var jane = &user.DefaultInfo{Name: "jane"}

func TestAllocationAndReservationsNeedThePermissionOfTheScheduler(t *testing.T) {
	allocated := resourcev1.ResourceClaimStatus{Allocation: on("metadata.name", "n1")}
	reserved := *allocated.DeepCopy()
	reserved.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: types.UID("1")}}
	const refusal = `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: ` +
		`resourceclaims.resource.k8s.io is forbidden: User "jane" cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope: no role`
	for _, test := range []struct {
		rule              string
		permissions       permissions
		verb, subresource string
		status, old       resourcev1.ResourceClaimStatus
		want              string
	}{
		{"allocation", nil, "patch", "status", allocated, resourcev1.ResourceClaimStatus{}, refusal},
		{"deallocation", nil, "patch", "status", resourcev1.ResourceClaimStatus{}, allocated, refusal},
		{"a reservation", nil, "patch", "status", reserved, allocated, refusal},
		{"with the permission", permissions{"patch binding /"}, "patch", "status", allocated, resourcev1.ResourceClaimStatus{}, ""},
		{"with the permission for updates", permissions{"update binding /"}, "update", "status", reserved, allocated, ""},
		{"with the permission for another verb", permissions{"update binding /"}, "patch", "status", allocated, resourcev1.ResourceClaimStatus{}, refusal},
		{"with the permission in the namespace only", permissions{"patch binding ns/", "patch binding ns/c"}, "patch", "status", allocated, resourcev1.ResourceClaimStatus{}, refusal},
		{"none", nil, "patch", "status", reserved, reserved, ""},
		{"of the claim itself, whose status stays", nil, "patch", "", allocated, resourcev1.ResourceClaimStatus{}, ""},
	} {
		if got := strings.Join(update(t, test.permissions, jane, test.verb, test.subresource, test.status, test.old), "\n"); got != test.want {
			t.Errorf("%s: %s\nwant %s", test.rule, got, test.want)
		}
	}
}

func TestTheStatusOfDevicesNeedsAPermissionOnTheirDrivers(t *testing.T) {
	of := func(driver, device string, change ...func(*resourcev1.AllocatedDeviceStatus)) resourcev1.AllocatedDeviceStatus {
		d := resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: "p", Device: device}
		for _, c := range change {
			c(&d)
		}
		return d
	}
	ready := func(d *resourcev1.AllocatedDeviceStatus) { d.Conditions = []metav1.Condition{{Type: "Ready"}} }
	share := func(d *resourcev1.AllocatedDeviceStatus) { d.ShareID = ptr.To("1") }
	type devices = []resourcev1.AllocatedDeviceStatus
	onN1 := on("metadata.name", "n1")
	refusal := func(who, verbs, verb string) string {
		return `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[` + verbs + `]" permission: resourceclaims.resource.k8s.io "a" is forbidden: User "` +
			who + `" cannot ` + verb + ` resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "ns": no role`
	}
	const account, anyNode, both = "system:serviceaccount:drivers:driver", "arbitrary-node:patch", "associated-node:patch arbitrary-node:patch"
	noRole := refusal("jane", anyNode, anyNode)
	everywhere, onNode := permissions{"arbitrary-node:patch driver ns/a"}, permissions{"associated-node:patch driver ns/a"}
	for _, test := range []struct {
		rule        string
		permissions permissions
		who         user.Info
		allocation  *resourcev1.AllocationResult
		status, old devices
		want        string
	}{
		{"a device is added", nil, jane, onN1, devices{of("a", "0")}, nil, noRole},
		{"a device is removed", nil, jane, onN1, nil, devices{of("a", "0")}, noRole},
		{"a device changes", nil, jane, onN1, devices{of("a", "0", ready)}, devices{of("a", "0")}, noRole},
		{"a device is replaced by a share of it", nil, jane, onN1, devices{of("a", "0", share)}, devices{of("a", "0")}, noRole},
		{"devices change their order", nil, jane, onN1, devices{of("a", "1"), of("a", "0")}, devices{of("a", "0"), of("a", "1")}, ""},
		{"no device of the driver changes", nil, jane, onN1, devices{of("a", "0", ready)}, devices{of("a", "0", ready)}, ""},
		{"with the permission", everywhere, jane, onN1, devices{of("a", "0")}, nil, ""},
		{"with the permission on one of two drivers", permissions{"arbitrary-node:patch driver ns/b"}, jane, onN1, devices{of("b", "0"), of("a", "0")}, nil, noRole},
		{"with the permission for another verb", permissions{"arbitrary-node:update driver ns/a", "patch driver ns/a"}, jane, onN1, devices{of("a", "0")}, nil, noRole},
		{"with the permission for the node only, not on a node", onNode, jane, onN1, devices{of("a", "0")}, nil, noRole},
		{"with the permission for the node only, of a user that is no service account", onNode,
			&user.DefaultInfo{Name: "jane", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}, onN1, devices{of("a", "0")}, nil, noRole},
		{"on the claim's node", onNode, fromNode("n1"), onN1, devices{of("a", "0")}, nil, ""},
		{"on the claim's node, with the permission for all", everywhere, fromNode("n1"), onN1, devices{of("a", "0")}, nil, ""},
		{"on the claim's node, without a permission", nil, fromNode("n1"), onN1, devices{of("a", "0")}, nil, refusal(account, both, "associated-node:patch")},
		{"on another node", onNode, fromNode("n2"), onN1, devices{of("a", "0")}, nil, refusal(account, anyNode, anyNode)},
		{"a claim for two nodes", onNode, fromNode("n1"), on("metadata.name", "n1", "n2"), devices{of("a", "0")}, nil, refusal(account, anyNode, anyNode)},
		{"a claim for nodes with a label", onNode, fromNode("n1"), on("name", "n1"), devices{of("a", "0")}, nil, refusal(account, anyNode, anyNode)},
		{"a claim for all nodes", onNode, fromNode(""), &resourcev1.AllocationResult{}, devices{of("a", "0")}, nil, refusal(account, anyNode, anyNode)},
		{"a claim that is not allocated", nil, jane, nil, nil, devices{of("a", "0")}, ""},
	} {
		old := resourcev1.ResourceClaimStatus{Allocation: test.allocation, Devices: test.old}
		got := update(t, test.permissions, test.who, "patch", "status", resourcev1.ResourceClaimStatus{Allocation: test.allocation, Devices: test.status}, old)
		if got := strings.Join(got, "\n"); got != test.want {
			t.Errorf("%s: %s\nwant %s", test.rule, got, test.want)
		}
	}
}

func TestOtherKindsAreNotChecked(t *testing.T) {
	for _, obj := range []runtime.Object{&corev1.Pod{}, &resourcev1.ResourceSlice{}, &resourcev1.ResourceClaimTemplate{}} {
		err := Guard(admission.NewChainHandler(), permissions{}).(admission.ValidationInterface).Validate(t.Context(), admission.NewAttributesRecord(
			obj, obj, corev1.SchemeGroupVersion.WithKind("x"), "ns", "c", corev1.SchemeGroupVersion.WithResource("x"), "status", admission.Update, nil, false, jane), nil)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
		}
	}
}
