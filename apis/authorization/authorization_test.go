package authorization

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

var jane = &user.DefaultInfo{Name: "jane", UID: "42", Groups: []string{"developers"}, Extra: map[string][]string{"scopes": {"a", "b"}}}

func TestKindsAreTheGroups(t *testing.T) {
	var got []string
	for _, d := range Kinds() {
		k := d.Kind()
		if k.Answer == nil {
			t.Errorf("%s is stored", k.Name)
		}
		if namespaced := k.Name == "localsubjectaccessreviews"; k.Namespaced != namespaced {
			t.Errorf("%s: namespaced = %v", k.Name, k.Namespaced)
		}
		got = append(got, k.Name+"."+k.Hub.Group+"/"+k.Hub.Version)
	}
	want := []string{
		"subjectaccessreviews.authorization.k8s.io/v1",
		"selfsubjectaccessreviews.authorization.k8s.io/v1",
		"localsubjectaccessreviews.authorization.k8s.io/v1",
		"selfsubjectrulesreviews.authorization.k8s.io/v1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("kinds = %v", got)
	}
}

func TestAccessReviewsAskTheAuthorizer(t *testing.T) {
	getPod := &authorizationv1.ResourceAttributes{Verb: "get", Namespace: "default", Resource: "pods", Subresource: "log", Name: "a"}
	for _, tc := range []struct {
		name   string
		review resource.Object
		want   authorizer.AttributesRecord
	}{
		{
			name:   "a user's access to a resource",
			review: &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", Groups: []string{"g"}, UID: "7", ResourceAttributes: getPod}},
			want: authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "bob", Groups: []string{"g"}, UID: "7"},
				Verb: "get", Namespace: "default", Resource: "pods", Subresource: "log", Name: "a", APIVersion: "*", ResourceRequest: true,
			},
		},
		{
			name:   "a user's access to a path",
			review: &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "bob", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}},
			want:   authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "bob"}, Verb: "get", Path: "/metrics"},
		},
		{
			name:   "one's own access",
			review: &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}},
			want:   authorizer.AttributesRecord{User: jane, Verb: "get", Path: "/metrics"},
		},
		{
			name:   "access in a namespace",
			review: &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{Groups: []string{"g"}, ResourceAttributes: getPod}},
			want: authorizer.AttributesRecord{
				User: &user.DefaultInfo{Groups: []string{"g"}},
				Verb: "get", Namespace: "default", Resource: "pods", Subresource: "log", Name: "a", APIVersion: "*", ResourceRequest: true,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := &recorder{decision: authorizer.DecisionNoOpinion, reason: "no role", err: errors.New("a role is missing")}
			answer, err := post(t, &resource.Env{Authorizer: asked}, tc.review)
			if err != nil {
				t.Fatal(err)
			}
			got := asked.got
			if got.User.GetName() != tc.want.User.GetName() || !slices.Equal(got.User.GetGroups(), tc.want.User.GetGroups()) || got.User.GetUID() != tc.want.User.GetUID() {
				t.Errorf("user = %v, want %v", got.User, tc.want.User)
			}
			got.User, tc.want.User = nil, nil
			if !equalAttributes(got, tc.want) {
				t.Errorf("asked %+v\nwant %+v", got, tc.want)
			}
			want := authorizationv1.SubjectAccessReviewStatus{Reason: "no role", EvaluationError: "a role is missing"}
			if status := accessStatus(answer); status != want {
				t.Errorf("status = %+v, want %+v", status, want)
			}
		})
	}
}

func TestDecisionsInAReview(t *testing.T) {
	for decision, want := range map[authorizer.Decision]authorizationv1.SubjectAccessReviewStatus{
		authorizer.DecisionAllow:     {Allowed: true},
		authorizer.DecisionDeny:      {Denied: true},
		authorizer.DecisionNoOpinion: {},
	} {
		answer, err := post(t, &resource.Env{Authorizer: &recorder{decision: decision}}, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if status := accessStatus(answer); status != want {
			t.Errorf("%v: status = %+v, want %+v", decision, status, want)
		}
	}
}

func TestSelectorsOfAReview(t *testing.T) {
	type attrs = authorizationv1.ResourceAttributes
	for _, tc := range []struct {
		name           string
		attributes     attrs
		fields, labels string
		evaluation     string
	}{
		{
			name:       "raw selectors",
			attributes: attrs{FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=n1"}, LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "app in (a,b)"}},
			fields:     "spec.nodeName=n1", labels: "app in (a,b)",
		},
		{
			name: "requirements",
			attributes: attrs{
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"n1"}}, {Key: "a", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"b"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}, {Key: "b", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"c"}}}},
			},
			fields: "spec.nodeName=n1,a!=b", labels: "app,b notin (c)",
		},
		{
			name: "what is not understood is left out and told",
			attributes: attrs{
				FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "Near", Values: []string{"b"}}}},
				LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}, {Key: "b", Operator: "Near", Values: []string{"c"}}}},
			},
			labels:     "app",
			evaluation: "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector partially ignored due to parse error",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := &recorder{decision: authorizer.DecisionAllow}
			answer, err := post(t, &resource.Env{Authorizer: asked}, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &tc.attributes}})
			if err != nil {
				t.Fatal(err)
			}
			var gotFields, gotLabels []string
			for _, r := range asked.got.FieldSelectorRequirements {
				gotFields = append(gotFields, r.Field+string(r.Operator)+r.Value)
			}
			for _, r := range asked.got.LabelSelectorRequirements {
				gotLabels = append(gotLabels, r.String())
			}
			if strings.Join(gotFields, ",") != tc.fields || strings.Join(gotLabels, ",") != tc.labels {
				t.Errorf("fields = %q, labels = %q", gotFields, gotLabels)
			}
			if got := accessStatus(answer).EvaluationError; got != tc.evaluation {
				t.Errorf("evaluationError = %q\nwant %q", got, tc.evaluation)
			}
		})
	}
}

func TestReviewsThatAreInvalid(t *testing.T) {
	res := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "other"}
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/"}
	for _, tc := range []struct {
		name   string
		review resource.Object
		want   string
	}{
		{"no question", &authorizationv1.SelfSubjectAccessReview{}, `SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified`},
		{"two questions", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: res, NonResourceAttributes: path}}, `cannot be specified in combination with resourceAttributes`},
		{"no user and no group", &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: res}}, `spec.user: Invalid value: "": at least one of user or group must be specified`},
		{"metadata", &authorizationv1.SubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: res}}, `must be empty`},
		{"another namespace", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: res}}, `spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace`},
		{"a path in a namespace", &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", NonResourceAttributes: path}}, `disallowed on this kind of request`},
		{"an empty selector", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{}}}}, `spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required`},
		{"both forms of a selector", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}}}}}, `may not specified at the same time as requirements`},
		{"a bad requirement", &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}}}}, `spec.resourceAttributes.labelSelector.requirements[0].values: Required value`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := post(t, &resource.Env{Authorizer: &recorder{}}, tc.review)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v\nwant one that contains %s", err, tc.want)
			}
		})
	}
}

func TestRulesReview(t *testing.T) {
	answer, err := post(t, &resource.Env{Rules: rules{}}, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	status := answer.(*authorizationv1.SelfSubjectRulesReview).Status
	if len(status.ResourceRules) != 1 || status.ResourceRules[0].Resources[0] != "pods of jane in default" || status.NonResourceRules == nil || !status.Incomplete || status.EvaluationError != "no roles" {
		t.Errorf("status = %+v", status)
	}
	if _, err := post(t, &resource.Env{Rules: rules{}}, &authorizationv1.SelfSubjectRulesReview{}); !apierrors.IsBadRequest(err) || err.Error() != "no namespace on request" {
		t.Errorf("without a namespace: %v", err)
	}
}

// identify is an authenticator that must see only the token.
// post runs the declaration of the review's type, as jane.
func post(t *testing.T, env *resource.Env, review resource.Object) (runtime.Object, error) {
	t.Helper()
	for _, d := range Kinds() {
		k := d.Kind()
		if reflect.TypeOf(k.New()) == reflect.TypeOf(review) {
			return k.Answer(request.WithUser(t.Context(), jane), env, review, false)
		}
	}
	t.Fatalf("no kind for %T", review)
	return nil, nil
}

func accessStatus(obj runtime.Object) authorizationv1.SubjectAccessReviewStatus {
	switch r := obj.(type) {
	case *authorizationv1.SubjectAccessReview:
		return r.Status
	case *authorizationv1.SelfSubjectAccessReview:
		return r.Status
	default:
		return r.(*authorizationv1.LocalSubjectAccessReview).Status
	}
}

func equalAttributes(a, b authorizer.AttributesRecord) bool {
	return a.Verb == b.Verb && a.Namespace == b.Namespace && a.APIGroup == b.APIGroup && a.APIVersion == b.APIVersion && a.Resource == b.Resource &&
		a.Subresource == b.Subresource && a.Name == b.Name && a.ResourceRequest == b.ResourceRequest && a.Path == b.Path
}

// recorder is an authorizer that records the attributes it was called with.
type recorder struct {
	decision authorizer.Decision
	reason   string
	err      error
	got      authorizer.AttributesRecord
}

func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.got = a.(authorizer.AttributesRecord)
	return r.decision, r.reason, r.err
}

// rules is a resolver that echoes its arguments.
type rules struct{}

func (rules) RulesFor(_ context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	granted := &authorizer.DefaultResourceRuleInfo{Resources: []string{"pods of " + who.GetName() + " in " + namespace}}
	return []authorizer.ResourceRuleInfo{granted, granted}, nil, true, errors.New("no roles") // by two bindings
}
