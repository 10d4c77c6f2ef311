package ownerreferences

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func owner(uid string, blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: types.UID(uid), BlockOwnerDeletion: ptr.To(blocks)}
}

func pod(owners ...metav1.OwnerReference) *corev1.Pod {
	return admissiontest.Pod(func(p *corev1.Pod) { p.OwnerReferences = owners })
}

// may allows "verb resource[/subresource] [namespace]".
func may(allowed ...string) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		what := a.GetVerb() + " " + a.GetResource()
		if a.GetSubresource() != "" {
			what += "/" + a.GetSubresource()
		}
		if a.GetNamespace() != "" {
			what += " " + a.GetNamespace()
		}
		if slices.Contains(allowed, what) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no rule", nil
	})
}

func TestChangesOfOwnersNeedPermissions(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, meta.RESTScopeNamespace)
	const (
		noDelete   = `pods "pod" is forbidden: cannot set an ownerRef on a resource you can't delete: no rule, <nil>`
		noFinalize = `pods "pod" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: no rule, <nil>`
	)
	unknown := owner("1", true)
	unknown.Kind = "Other"
	for _, test := range []struct {
		rule string
		may  authorizer.Authorizer
		admissiontest.Request
		err string
	}{
		{"a new object with an owner", may(), admissiontest.Request{Object: pod(owner("1", false))}, ""},
		{"an update of something else", may(), admissiontest.Request{Object: pod(owner("1", true)), Old: pod(owner("1", true))}, ""},
		{"another owner without the permission to delete", may(), admissiontest.Request{Object: pod(owner("2", false)), Old: pod(owner("1", false))}, noDelete},
		{"no owner any more", may(), admissiontest.Request{Object: pod(), Old: pod(owner("1", false))}, noDelete},
		{"another owner with it", may("delete pods ns"), admissiontest.Request{Object: pod(owner("2", false)), Old: pod(owner("1", false))}, ""},
		{"a status", may(), admissiontest.Request{Object: pod(), Old: pod(owner("1", false)), Subresource: "status"}, ""},
		{"a new object that blocks", may(), admissiontest.Request{Object: pod(owner("1", true))}, noFinalize},
		{"with the permission on the owner", may("update replicasets/finalizers ns"), admissiontest.Request{Object: pod(owner("1", true))}, ""},
		{"with the permission on everything", may("update */finalizers"), admissiontest.Request{Object: pod(owner("1", true))}, ""},
		{"an owner that becomes blocked", may("delete pods ns"), admissiontest.Request{Object: pod(owner("1", true)), Old: pod(owner("1", false))}, noFinalize},
		{"an owner that stays blocked", may("delete pods ns"), admissiontest.Request{Object: pod(owner("1", true)), Old: pod(owner("1", true), owner("2", false))}, ""},
		{"an owner of an unknown kind", may(), admissiontest.Request{Object: pod(unknown)},
			`pods "pod" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion apps/v1 Kind Other: no matches for kind "Other" in version "apps/v1"`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := admissiontest.Server{Authorizer: test.may, RESTMapper: mapper}.Start(t, Register).Send(t, test.Request)
			if test.err == "" && err != nil || test.err != "" && (err == nil || err.Error() != test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
		})
	}
}
