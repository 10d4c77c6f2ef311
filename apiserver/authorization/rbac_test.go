package authorization

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// withRoles returns the authorizer of the mode RBAC with these objects.
func withRoles(t *testing.T, components Grants, objects ...runtime.Object) Authorizer {
	t.Helper()
	a, err := New(Config{Modes: []string{RBAC}, Components: components})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	a.Roles.Follow(factory.Rbac().V1())
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return a
}

func roleObjects() []runtime.Object {
	pods := []rbacv1.PolicyRule{can("", []string{"pods"}, "list")}
	nodes := []rbacv1.PolicyRule{can("", []string{"nodes"}, "list")}
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	to := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	return []runtime.Object{
		&rbacv1.Role{ObjectMeta: in("a", "pods"), Rules: pods},
		&rbacv1.ClusterRole{ObjectMeta: in("", "nodes"), Rules: nodes},
		&rbacv1.ClusterRole{ObjectMeta: in("", "pods"), Rules: pods},
		&rbacv1.RoleBinding{ObjectMeta: in("a", "jane"), RoleRef: to("Role", "pods"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}},
		&rbacv1.RoleBinding{ObjectMeta: in("b", "local"), RoleRef: to("ClusterRole", "pods"), Subjects: []rbacv1.Subject{
			{Kind: "ServiceAccount", Name: "robot"}, {Kind: "ServiceAccount", Namespace: "c", Name: "guest"}}},
		&rbacv1.RoleBinding{ObjectMeta: in("a", "dangling"), RoleRef: to("Role", "none"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "lost"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: in("", "dangling"), RoleRef: to("ClusterRole", "none"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "astray"}}},
		&rbacv1.RoleBinding{ObjectMeta: in("b", "dangling"), RoleRef: to("Role", "none"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "astray"}}},
		&rbacv1.RoleBinding{ObjectMeta: in("b", "dangling-too"), RoleRef: to("Role", "none"), Subjects: []rbacv1.Subject{{Kind: "User", Name: "astray"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: in("", "operators"), RoleRef: to("ClusterRole", "nodes"), Subjects: []rbacv1.Subject{{Kind: "Group", Name: "operators"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: in("", "unplaced"), RoleRef: to("ClusterRole", "nodes"), Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot"}}},
	}
}

func TestTheRulesOfBoundRolesAreAllowed(t *testing.T) {
	component := Grant{User: "manager", Rules: []rbacv1.PolicyRule{can("", []string{"pods"}, "list")}}
	a := withRoles(t, Grants{component}, roleObjects()...)
	named := func(name string, groups ...string) user.Info { return &user.DefaultInfo{Name: name, Groups: groups} }
	robot, guest := named("system:serviceaccount:b:robot"), named("system:serviceaccount:c:guest")
	for _, tc := range []struct {
		name      string
		user      user.Info
		resource  string
		namespace string
		want      bool
		reason    string
	}{
		{name: "a role in its namespace", user: jane, resource: "pods", namespace: "a", want: true,
			reason: `RBAC: allowed by RoleBinding "jane/a" of Role "pods" to User "jane"`},
		{name: "a role in another namespace", user: jane, resource: "pods", namespace: "b"},
		{name: "a role in no namespace", user: jane, resource: "pods"},
		{name: "a resource that is not in the role", user: jane, resource: "secrets", namespace: "a"},
		{name: "another user", user: named("john"), resource: "pods", namespace: "a"},
		{name: "a cluster role of a group", user: named("o", "operators"), resource: "nodes", want: true,
			reason: `RBAC: allowed by ClusterRoleBinding "operators" of ClusterRole "nodes" to Group "operators"`},
		{name: "a cluster role of another group", user: named("o", "others"), resource: "nodes"},
		{name: "a cluster role bound in a namespace", user: robot, resource: "pods", namespace: "b", want: true,
			reason: `RBAC: allowed by RoleBinding "local/b" of ClusterRole "pods" to ServiceAccount "robot/b"`},
		{name: "a service account of another namespace", user: guest, resource: "pods", namespace: "b", want: true,
			reason: `RBAC: allowed by RoleBinding "local/b" of ClusterRole "pods" to ServiceAccount "guest/c"`},
		{name: "a service account without a namespace in a cluster's binding", user: robot, resource: "nodes"},
		{name: "a role that does not exist", user: named("lost"), resource: "pods", namespace: "a", reason: `RBAC: role.rbac.authorization.k8s.io "none" not found`},
		{name: "several roles that do not exist", user: named("astray"), resource: "pods", namespace: "b",
			reason: `RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "none" not found]`},
		{name: "a component", user: named("manager"), resource: "pods", namespace: "x", want: true, reason: "RBAC: allowed by the rules of the component"},
		{name: "system:masters without any role", user: admin, resource: "secrets", want: true},
		{name: "discovery is not allowed without its role", user: jane, resource: "", namespace: ""},
		{name: "a request without a user", resource: "pods", namespace: "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ask := authorizer.AttributesRecord{User: tc.user, Verb: "list", Resource: tc.resource, Namespace: tc.namespace, ResourceRequest: true}
			if tc.resource == "" {
				ask = authorizer.AttributesRecord{User: tc.user, Verb: "get", Path: "/api"}
			}
			decision, reason, err := a.Authorize(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			if got := decision == authorizer.DecisionAllow; got != tc.want || reason != tc.reason {
				t.Errorf("decision = %v (%s), want allowed = %v (%s)", decision, reason, tc.want, tc.reason)
			}
		})
	}
}

func TestRulesOfRolesAreThoseOfTheNamespace(t *testing.T) {
	a := withRoles(t, nil, roleObjects()...)
	for namespace, want := range map[string]int{"a": 1, "b": 0, "": 0} {
		resources, paths, incomplete, err := a.RulesFor(t.Context(), jane, namespace)
		if err != nil || incomplete || len(paths) > 0 || len(resources) != want {
			t.Errorf("%q: %d rules, %d paths, incomplete = %v, error = %v; want %d rules", namespace, len(resources), len(paths), incomplete, err, want)
		}
	}
	for _, dangling := range []struct{ who, namespace, want string }{
		{"lost", "a", `role.rbac.authorization.k8s.io "none" not found`},
		{"astray", "b", `[clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "none" not found]`},
	} {
		if _, _, _, err := a.RulesFor(t.Context(), &user.DefaultInfo{Name: dangling.who}, dangling.namespace); err == nil || err.Error() != dangling.want {
			t.Errorf("the roles of %s do not exist: %v, want %s", dangling.who, err, dangling.want)
		}
	}
}
