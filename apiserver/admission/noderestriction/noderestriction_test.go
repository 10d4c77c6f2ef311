package noderestriction

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}
}

func pod(name, node string, annotations map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("ns", name), Spec: corev1.PodSpec{NodeName: node}}
	p.Annotations = annotations
	return p
}

func tokenFor(kind, name, uid string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)},
	}}
}

func TestNodesActOnlyOnTheirOwnObjects(t *testing.T) {
	mine, theirs, unbound := pod("mine", "a", nil), pod("theirs", "b", nil), pod("new", "", nil)
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), client: fake.NewClientset(mine, theirs)}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	mirror := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	served := pod("m", "a", mirror)
	served.Spec.ServiceAccountName = "admin"
	older := theirs.DeepCopy()
	older.UID = "older"
	earlier := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("earlier")}
	const no, yes, none = "no", "yes", "none"
	for _, test := range []struct {
		rule          string
		operation     admission.Operation
		name, sub     string
		object, old   runtime.Object
		deleteOptions *metav1.DeleteOptions
		want          string
	}{
		{rule: "its Node", operation: admission.Create, object: &corev1.Node{ObjectMeta: meta("", "a")}, want: yes},
		{rule: "another Node", operation: admission.Create, object: &corev1.Node{ObjectMeta: meta("", "b")}, want: no},
		{rule: "another CSINode", operation: admission.Create, object: &storagev1.CSINode{ObjectMeta: meta("", "b")}, want: no},
		{rule: "its lease", operation: admission.Create, object: &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", "a")}, want: yes},
		{rule: "another node's lease", operation: admission.Create, object: &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", "b")}, want: no},
		{rule: "a lease of a leader election", operation: admission.Update, old: &coordinationv1.Lease{ObjectMeta: meta("kube-system", "a")}, want: no},
		{rule: "a mirror pod", operation: admission.Create, object: pod("m", "a", mirror), want: yes},
		{rule: "a mirror pod on another node", operation: admission.Create, object: pod("m", "b", mirror), want: no},
		{rule: "any pod", operation: admission.Create, object: pod("m", "a", nil), want: no},
		{rule: "a mirror pod with a service account", operation: admission.Create, object: served, want: no},
		{rule: "the status of a pod of its own", operation: admission.Update, sub: "status", object: mine, old: mine, want: yes},
		{rule: "the status of another node's pod", operation: admission.Update, sub: "status", object: theirs, old: theirs, want: no},
		{rule: "the status of an unbound pod", operation: admission.Update, sub: "status", object: unbound, old: unbound, want: no},
		{rule: "the status of an earlier pod of the name", operation: admission.Update, sub: "status", object: older, old: theirs, want: yes}, // a conflict
		{rule: "a pod of its own", operation: admission.Delete, old: mine, deleteOptions: &metav1.DeleteOptions{}, want: yes},
		{rule: "another node's pod", operation: admission.Delete, old: theirs, deleteOptions: &metav1.DeleteOptions{}, want: no},
		{rule: "an earlier pod of the name", operation: admission.Delete, old: theirs, deleteOptions: &earlier, want: yes}, // a conflict
		{rule: "the eviction of a pod of its own", operation: admission.Create, name: "mine", sub: "eviction", object: &policyv1.Eviction{}, want: yes},
		{rule: "the eviction of another node's pod", operation: admission.Create, name: "theirs", sub: "eviction", object: &policyv1.Eviction{}, want: no},
		{rule: "a token of its pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", "mine-uid"), want: yes},
		{rule: "a token of an earlier pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", "x"), want: no},
		{rule: "a token of a pod of any UID", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", ""), want: no},
		{rule: "a token of another node's pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "theirs", "theirs-uid"), want: no},
		{rule: "a token of a pod that does not exist", operation: admission.Create, sub: "token", object: tokenFor("Pod", "none", "none-uid"), want: none},
		{rule: "a token of a secret", operation: admission.Create, sub: "token", object: tokenFor("Secret", "mine", "mine-uid"), want: no},
		{rule: "a token without a bound object", operation: admission.Create, sub: "token", object: &authenticationv1.TokenRequest{}, want: no},
		{rule: "an event", operation: admission.Create, object: &corev1.Event{ObjectMeta: meta("ns", "e")}, want: yes},
	} {
		t.Run(string(test.operation)+" "+test.rule, func(t *testing.T) {
			admit := func(who user.Info) error {
				var options runtime.Object
				if test.deleteOptions != nil {
					options = test.deleteOptions
				}
				return p.Validate(t.Context(), admission.NewAttributesRecord(test.object, test.old, schema.GroupVersionKind{}, "ns", test.name,
					schema.GroupVersionResource{}, test.sub, test.operation, options, false, who), nil)
			}
			err := admit(&user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}})
			if test.want == yes && err != nil || test.want == no && !apierrors.IsForbidden(err) || test.want == none && !apierrors.IsNotFound(err) {
				t.Errorf("want %s: %v", test.want, err)
			}
			if err := admit(&user.DefaultInfo{Name: "system:node:a"}); err != nil {
				t.Errorf("a user outside the group of nodes: %v", err)
			}
			if err := admit(&user.DefaultInfo{Name: "system:node:", Groups: []string{user.NodesGroup}}); !apierrors.IsForbidden(err) {
				t.Errorf("a node without a name: %v", err)
			}
		})
	}
}
