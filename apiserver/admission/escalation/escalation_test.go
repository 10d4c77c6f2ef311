package escalation

import (
	"context"
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/authorization"
)

// noRights is Roles where no user holds a rule and every role allows everything.
type noRights struct{}

func (noRights) Held(context.Context, user.Info, string) ([]rbacv1.PolicyRule, error) {
	return nil, nil
}

func (noRights) Rules(context.Context, rbacv1.RoleRef, string) ([]rbacv1.PolicyRule, error) {
	return authorization.Everything(), nil
}

// everyRight is Roles where every user holds all rules.
type everyRight struct{ noRights }

func (everyRight) Held(context.Context, user.Info, string) ([]rbacv1.PolicyRule, error) {
	return authorization.Everything(), nil
}

// requestOf returns the context of a request whose path has the name.
func requestOf(t *testing.T, name string) context.Context {
	t.Helper()
	return request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Name: name})
}

func TestTheRulesThatAUserHoldsDecideIfAnAuthorizerFails(t *testing.T) {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: authorization.Everything()}
	for decision, permits := range map[authorizer.Decision]bool{authorizer.DecisionNoOpinion: false, authorizer.DecisionAllow: true} {
		failing := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return decision, "", errors.New("dial tcp 10.0.0.1:443: connection refused")
		})
		for resource, obj := range map[string]runtime.Object{"rolebindings": binding, "roles": role} {
			a := admission.NewAttributesRecord(obj, nil, rbacv1.SchemeGroupVersion.WithKind("x"), "ns", "x", rbacv1.SchemeGroupVersion.WithResource(resource), "",
				admission.Create, nil, false, &user.DefaultInfo{Name: "jane"})
			validate := func(roles Roles) error {
				return Guard(admission.NewChainHandler(), failing, roles).(admission.ValidationInterface).Validate(requestOf(t, ""), a, nil)
			}
			if err := validate(everyRight{}); err != nil {
				t.Errorf("%s of a user who holds the rules: %v", resource, err)
			}
			if err := validate(noRights{}); (err == nil) != permits || err != nil && strings.Contains(err.Error(), "10.0.0.1") {
				t.Errorf("%s of a user who does not hold the rules: %v", resource, err)
			}
		}
	}
}

func TestAUserWithoutRulesMayWriteOnlyRolesAndBindingsOfWhichTheVerbsAllowIt(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps"}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		{NonResourceURLs: []string{"/a"}, Verbs: []string{"get", "post"}},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: rules}
	collected := role.DeepCopy()
	collected.Finalizers, collected.OwnerReferences = []string{"a/b"}, []metav1.OwnerReference{{Name: "o"}}
	labelled := role.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	// These have no rules of their own: only what they aggregate is more than jane has.
	empty := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	aggregates := empty.DeepCopy()
	aggregates.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	const aggregation = `clusterroles.rbac.authorization.k8s.io "r" is forbidden: must have cluster-admin privileges to use the aggregationRule`
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"}}
	jane := &user.DefaultInfo{Name: "jane", Groups: []string{"g"}}
	const refusal = `clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["g"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}
{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}
{NonResourceURLs:["/a"], Verbs:["get"]}
{NonResourceURLs:["/a"], Verbs:["post"]}`
	allow, deny := authorizerfactory.NewAlwaysAllowAuthorizer(), authorizerfactory.NewAlwaysDenyAuthorizer()
	for _, tc := range []struct {
		name     string
		who      user.Info
		may      authorizer.Authorizer
		resource string
		obj, old runtime.Object
		want     string
	}{
		{name: "a new role", who: jane, may: deny, resource: "clusterroles", obj: role, want: refusal},
		{name: "a role that the user may escalate", who: jane, may: allow, resource: "clusterroles", obj: role},
		{name: "an administrator's role", who: &user.DefaultInfo{Name: "a", Groups: []string{user.SystemPrivilegedGroup}}, may: deny, resource: "clusterroles", obj: role},
		{name: "a change of the fields that the garbage collector writes", who: jane, may: deny, resource: "clusterroles", obj: collected, old: role},
		{name: "a change of another field of a role", who: jane, may: deny, resource: "clusterroles", obj: labelled, old: role, want: refusal},
		{name: "a role without rules", who: jane, may: deny, resource: "clusterroles", obj: empty},
		{name: "a role that aggregates others", who: jane, may: deny, resource: "clusterroles", obj: aggregates, want: aggregation},
		{name: "a role that will aggregate others", who: jane, may: deny, resource: "clusterroles", obj: aggregates, old: empty, want: aggregation},
		{name: "a role that no longer aggregates others", who: jane, may: deny, resource: "clusterroles", obj: empty, old: aggregates, want: aggregation},
		{name: "a role that aggregates others, and that the user may escalate", who: jane, may: allow, resource: "clusterroles", obj: aggregates},
		{name: "a role that the user may bind", who: jane, may: allow, resource: "clusterrolebindings", obj: binding},
		{name: "a role that the user may not bind", who: jane, may: deny, resource: "clusterrolebindings", obj: binding,
			want: `clusterrolebindings.rbac.authorization.k8s.io "b" is forbidden: user "jane" (groups=["g"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:["*"], Resources:["*"], Verbs:["*"]}
{NonResourceURLs:["*"], Verbs:["*"]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			operation := admission.Create
			if tc.old != nil {
				operation = admission.Update
			}
			gv := rbacv1.SchemeGroupVersion
			name := tc.obj.(metav1.Object).GetName()
			a := admission.NewAttributesRecord(tc.obj, tc.old, gv.WithKind("x"), "", name, gv.WithResource(tc.resource), "", operation, nil, false, tc.who)
			plugin := Guard(admission.NewChainHandler(), tc.may, noRights{}).(admission.ValidationInterface)
			got := ""
			if err := plugin.Validate(requestOf(t, ""), a, nil); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestTheRightToEscalateARoleByItsNameIsNoneToCreateIt(t *testing.T) {
	ofName := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "escalate" && a.GetName() == "r" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	old := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: authorization.Everything()}
	for _, test := range []struct {
		rule, inPath string
		operation    admission.Operation
		old          runtime.Object
		allowed      bool
	}{
		{"a creation by POST", "", admission.Create, nil, false},
		{"a creation by server-side apply", "r", admission.Create, nil, true},
		{"an update", "r", admission.Update, old, true},
	} {
		gv := rbacv1.SchemeGroupVersion
		a := admission.NewAttributesRecord(role, test.old, gv.WithKind("ClusterRole"), "", "r", gv.WithResource("clusterroles"), "", test.operation, nil, false, &user.DefaultInfo{Name: "jane"})
		err := Guard(admission.NewChainHandler(), ofName, noRights{}).(admission.ValidationInterface).Validate(requestOf(t, test.inPath), a, nil)
		if (err == nil) != test.allowed {
			t.Errorf("%s: %v, want allowed: %t", test.rule, err, test.allowed)
		}
	}
}

// noRole is Roles where no role exists.
type noRole struct{}

func notFound() error { return apierrors.NewNotFound(rbacv1.Resource("clusterroles"), "gone") }

func (noRole) Held(context.Context, user.Info, string) ([]rbacv1.PolicyRule, error) {
	return nil, utilerrors.NewAggregate([]error{notFound()})
}

func (noRole) Rules(context.Context, rbacv1.RoleRef, string) ([]rbacv1.PolicyRule, error) {
	return nil, notFound()
}

func TestRolesThatDoNotExistAreNamedAsByKubernetes(t *testing.T) {
	for resource, test := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"rolebindings": {&rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"}}, `rolebindings.rbac.authorization.k8s.io "gone" not found`},
		"roles":        {&rbacv1.Role{Rules: authorization.Everything()}, `; resolution errors: [clusterroles.rbac.authorization.k8s.io "gone" not found]`},
	} {
		a := admission.NewAttributesRecord(test.obj, nil, rbacv1.SchemeGroupVersion.WithKind("x"), "ns", "x", rbacv1.SchemeGroupVersion.WithResource(resource), "",
			admission.Create, nil, false, &user.DefaultInfo{Name: "jane"})
		no := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		})
		err := Guard(admission.NewChainHandler(), no, noRole{}).(admission.ValidationInterface).Validate(requestOf(t, ""), a, nil)
		if err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", resource, err, test.want)
		}
	}
}
