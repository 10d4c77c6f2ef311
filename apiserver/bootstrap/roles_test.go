package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/component-helpers/auth/rbac/validation"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/release"
)

// ensureRoles runs the step, and fails the test with its error.
func ensureRoles(t *testing.T, client *fake.Clientset) {
	t.Helper()
	if err := RolesStep(client, createWith(client), func(context.Context, []authorization.DefaultRole) {}, release.Default, func(string) bool { return false }).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// createWith returns the function by which RolesStep creates objects at a client.
func createWith(client *fake.Clientset) Create {
	return func(ctx context.Context, obj runtime.Object) error {
		rbac, options := client.RbacV1(), metav1.CreateOptions{}
		var err error
		switch obj := obj.(type) {
		case *rbacv1.ClusterRole:
			_, err = rbac.ClusterRoles().Create(ctx, obj, options)
		case *rbacv1.ClusterRoleBinding:
			_, err = rbac.ClusterRoleBindings().Create(ctx, obj, options)
		case *rbacv1.Role:
			_, err = rbac.Roles(obj.Namespace).Create(ctx, obj, options)
		case *rbacv1.RoleBinding:
			_, err = rbac.RoleBindings(obj.Namespace).Create(ctx, obj, options)
		default:
			err = fmt.Errorf("unexpected type %T", obj)
		}
		return err
	}
}

// TestAStartRepairsTheDefaultRolesUnlessTheirAnnotationForbidsIt changes a role and its
// binding as an operator may, and starts again.
func TestAStartRepairsTheDefaultRolesUnlessTheirAnnotationForbidsIt(t *testing.T) {
	const name = "system:discovery" // the role and its binding
	own := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"gadgets"}}
	stranger := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}
	for _, test := range []struct {
		rule       string
		annotation string
		repaired   bool
	}{
		{"with the annotation", "true", true},
		{"without the annotation", "", true},
		{"with an annotation that forbids it", "false", false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			client := fake.NewClientset()
			ensureRoles(t, client)
			rbac := client.RbacV1()
			role, err := rbac.ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			binding, err := rbac.ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if role.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" || binding.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
				t.Fatalf("the annotations are %v and %v", role.Annotations, binding.Annotations)
			}
			rules, subjects := role.Rules, binding.Subjects
			role.Rules, binding.Subjects = []rbacv1.PolicyRule{own}, []rbacv1.Subject{stranger}
			for _, annotations := range []map[string]string{role.Annotations, binding.Annotations} {
				if annotations[rbacv1.AutoUpdateAnnotationKey] = test.annotation; test.annotation == "" {
					delete(annotations, rbacv1.AutoUpdateAnnotationKey)
				}
			}
			if _, err := rbac.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := rbac.ClusterRoleBindings().Update(t.Context(), binding, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			ensureRoles(t, client)
			if role, err = rbac.ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if binding, err = rbac.ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if kept, _ := validation.Covers(role.Rules, []rbacv1.PolicyRule{own}); !kept || !slices.Contains(binding.Subjects, stranger) {
				t.Errorf("what the operator added is gone: %v, %v", role.Rules, binding.Subjects)
			}
			if repaired, _ := validation.Covers(role.Rules, rules); repaired != test.repaired {
				t.Errorf("the role has %v, repaired: want %v", role.Rules, test.repaired)
			}
			for _, subject := range subjects {
				if slices.Contains(binding.Subjects, subject) != test.repaired {
					t.Errorf("the binding has %v, repaired: want %v", binding.Subjects, test.repaired)
				}
			}
		})
	}
}

func TestAStartCreatesDeletedRolesAndBindingsAgainAndWritesNothingElse(t *testing.T) {
	client := fake.NewClientset()
	ensureRoles(t, client)
	rbac := client.RbacV1()
	for _, err := range []error{
		rbac.ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}),
		rbac.ClusterRoleBindings().Delete(t.Context(), "system:basic-user", metav1.DeleteOptions{}),
		rbac.Roles(metav1.NamespaceSystem).Delete(t.Context(), "extension-apiserver-authentication-reader", metav1.DeleteOptions{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	client.ClearActions()
	ensureRoles(t, client)
	if again := writes(client); len(again) != 3 {
		t.Errorf("the second start wrote %v", again)
	}
	if view, err := rbac.ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{}); err != nil || view.AggregationRule == nil {
		t.Errorf("view is %v, %v", view, err)
	}
	if _, err := rbac.ClusterRoleBindings().Get(t.Context(), "system:basic-user", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := rbac.Roles(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication-reader", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestOnlyARoleThatHasChangedIsReconciled(t *testing.T) {
	wanted := func() *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{
			ObjectMeta: defaultMeta("", "r", map[string]string{"a": "b"}),
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
		}
	}
	for rule, test := range map[string]struct {
		change  func(*rbacv1.ClusterRole)
		current bool
	}{
		"what it needs":                {func(*rbacv1.ClusterRole) {}, true},
		"further labels":               {func(r *rbacv1.ClusterRole) { r.Labels["c"] = "d" }, true},
		"an empty list instead of nil": {func(r *rbacv1.ClusterRole) { r.Rules[0].NonResourceURLs = []string{} }, true},
		"a label less":                 {func(r *rbacv1.ClusterRole) { delete(r.Labels, "a") }, false},
		"another label":                {func(r *rbacv1.ClusterRole) { r.Labels["a"] = "c" }, false},
		"no update":                    {func(r *rbacv1.ClusterRole) { r.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false" }, false},
		"a verb less":                  {func(r *rbacv1.ClusterRole) { r.Rules[0].Verbs = []string{"get"} }, false},
		"a further rule":               {func(r *rbacv1.ClusterRole) { r.Rules = append(r.Rules, r.Rules[0]) }, false},
		"aggregation":                  {func(r *rbacv1.ClusterRole) { r.AggregationRule = &rbacv1.AggregationRule{} }, false},
		"another name":                 {func(r *rbacv1.ClusterRole) { r.Name = "s" }, false},
	} {
		stored := wanted()
		test.change(stored)
		list := &listedObjects{clusterRoles: indexByName([]rbacv1.ClusterRole{*stored})}
		o := reconciliation.ReconcileRoleOptions{Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: wanted()}, Client: listedRoles{get: list.clusterRole}}
		if got := isCurrent(o); got != test.current {
			t.Errorf("%s: got %v", rule, got)
		}
	}
}
