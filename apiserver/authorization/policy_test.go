package authorization

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/auth/rbac/validation"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// rolesAt returns the default roles of a release with gates that are set.
func rolesAt(t *testing.T, of release.Release, set string) []DefaultRole {
	t.Helper()
	gates, err := featuregates.NewAt(releases.Release(of.Minor))
	if err == nil && set != "" {
		err = gates.Set(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	roles, err := DefaultRoles(of, func(gate string) bool { return gates.Enabled(featuregate.Feature(gate)) })
	if err != nil {
		t.Fatal(err)
	}
	return roles
}

func defaultRole(t *testing.T, name string) DefaultRole {
	t.Helper()
	for _, role := range rolesAt(t, release.Newest, "") {
		if role.Name == name {
			return role
		}
	}
	t.Fatalf("there is no role %s", name)
	return DefaultRole{}
}

func TestDefaultRolesAreSound(t *testing.T) {
	for minor := release.Oldest.Minor; minor <= release.Newest.Minor; minor++ {
		of := release.Release{Major: 1, Minor: minor}
		t.Run(of.String(), func(t *testing.T) {
			checkRoles(t, rolesAt(t, of, ""))
		})
	}
}

func checkRoles(t *testing.T, roles []DefaultRole) {
	t.Helper()
	seen := map[string]bool{}
	aggregated := map[string]bool{}
	for _, role := range roles {
		for label := range role.Labels {
			aggregated[label] = true
		}
	}
	for _, role := range roles {
		key := role.Namespace + "/" + role.Name
		if seen[key] {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if (len(role.Rules) == 0) == (role.Aggregation == nil) {
			t.Errorf("%s: a role has either rules or an aggregation", key)
		}
		if len(role.Subjects) > 0 && role.Binding == "" {
			t.Errorf("%s has subjects without a binding", key)
		}
		if role.Aggregation != nil {
			for label := range role.Aggregation.ClusterRoleSelectors[0].MatchLabels {
				if !aggregated[label] {
					t.Errorf("%s aggregates the label %s, which no role has", key, label)
				}
			}
		}
	}
}

// TestRolesFollowTheRelease has roles and rules that a release of Kubernetes has added or
// removed; test/peers/access compares all of them with those of 1.36.
func TestRolesFollowTheRelease(t *testing.T) {
	for _, test := range []struct {
		role                  string
		verb, group, resource string
		before, since         int // minor releases; 0 is none
	}{
		{"cluster-admin", "get", "", "pods", 0, 0},
		{"system:aggregate-to-edit", "create", "resource.k8s.io", "resourceclaims", 0, 34},
		{"system:aggregate-to-view", "list", "events.k8s.io", "events", 0, 35},
		{"system:cluster-trust-bundle-discovery", "list", "certificates.k8s.io", "clustertrustbundles", 0, 37},
		{"system:controller:resource-claim-controller", "get", "", "pods", 0, 34},
		{"system:controller:resource-claim-controller", "update", "resource.k8s.io", "resourceclaims/binding", 0, 36},
		{"system:kube-scheduler", "create", "resource.k8s.io", "resourceclaims", 0, 36},
		{"system:controller:persistent-volume-binder", "get", "", "secrets", 32, 0},
		{"system:controller:node-controller", "list", "networking.k8s.io", "clustercidrs", 30, 0},
		{"system:controller:validatingadmissionpolicy-status-controller", "list", "admissionregistration.k8s.io", "validatingadmissionpolicies", 0, 30},
	} {
		for minor := release.Oldest.Minor; minor <= release.Newest.Minor; minor++ {
			roles := rolesAt(t, release.Release{Major: 1, Minor: minor}, "")
			resource, subresource, _ := strings.Cut(test.resource, "/")
			request := authorizer.AttributesRecord{Verb: test.verb, APIGroup: test.group, Resource: resource, Subresource: subresource, ResourceRequest: true}
			got := slices.ContainsFunc(roles, func(r DefaultRole) bool {
				return r.Name == test.role && slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return Allows(rule, request) })
			})
			if want := minor >= test.since && (test.before == 0 || minor < test.before); got != want {
				t.Errorf("at 1.%d %s allows to %s %s %s: %v, want %v", minor, test.role, test.verb, test.group, test.resource, got, want)
			}
		}
	}
}

func TestRolesFollowTheGatesOfTheRelease(t *testing.T) {
	for _, test := range []struct {
		minor int
		set   string
		want  bool
	}{{33, "", false}, {33, "ClusterTrustBundle=true", true}, {37, "", true}, {37, "ClusterTrustBundle=false", false}} {
		roles := rolesAt(t, release.Release{Major: 1, Minor: test.minor}, test.set)
		got := slices.ContainsFunc(roles, func(r DefaultRole) bool { return r.Name == "system:cluster-trust-bundle-discovery" })
		of := slices.ContainsFunc(roles, func(r DefaultRole) bool {
			return r.Name == "system:node" && slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "clustertrustbundles") })
		})
		if got != test.want || of != test.want {
			t.Errorf("1.%d %s: the role %t, the rule of nodes %t, want %t", test.minor, test.set, got, of, test.want)
		}
	}
}

func TestRolesAllowPodGroupsWithTheirGate(t *testing.T) {
	for _, test := range []struct{ role, verb, resource, gates string }{
		{"system:aggregate-to-view", "list", "podgroups", "GenericWorkload=true"},
		{"system:aggregate-to-edit", "create", "workloads", "GenericWorkload=true"},
		{"system:kube-scheduler", "patch", "podgroups/status", "GenericWorkload=true"},
		{"system:controller:podgroup-protection-controller", "update", "podgroups", "GenericWorkload=true"},
		{"system:controller:job-controller", "create", "workloads", "WorkloadWithJob=true"},
		{"system:aggregate-to-view", "list", "compositepodgroups", "CompositePodGroup=true"},
	} {
		resource, subresource, _ := strings.Cut(test.resource, "/")
		request := authorizer.AttributesRecord{Verb: test.verb, APIGroup: "scheduling.k8s.io", Resource: resource, Subresource: subresource, ResourceRequest: true}
		for _, gates := range []string{"", test.gates} {
			got := slices.ContainsFunc(rolesAt(t, release.Release{Major: 1, Minor: 37}, gates), func(r DefaultRole) bool {
				return r.Name == test.role && slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return Allows(rule, request) })
			})
			if got != (gates != "") {
				t.Errorf("gates %q: %s allows to %s %s: %v", gates, test.role, test.verb, test.resource, got)
			}
		}
	}
}

func TestTheSchedulerMakesClaimsWhereDeviceClassesOfferExtendedResources(t *testing.T) {
	for _, test := range []struct {
		minor int
		set   string
		want  bool
	}{{34, "", false}, {34, "DRAExtendedResource=true", true}, {36, "", true}, {36, "DRAExtendedResource=false", false}} {
		request := authorizer.AttributesRecord{Verb: "delete", APIGroup: "resource.k8s.io", Resource: "resourceclaims", ResourceRequest: true}
		got := slices.ContainsFunc(rolesAt(t, release.Release{Major: 1, Minor: test.minor}, test.set), func(r DefaultRole) bool {
			return r.Name == "system:kube-scheduler" && slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool { return Allows(rule, request) })
		})
		if got != test.want {
			t.Errorf("1.%d %s: %t, want %t", test.minor, test.set, got, test.want)
		}
	}
}

// TestNodesListNodesAndPodsByARoleSinceTheNodeAuthorizerDoesNotAllowIt: svc's agents need it.
func TestNodesListNodesAndPodsByARoleSinceTheNodeAuthorizerDoesNotAllowIt(t *testing.T) {
	for _, test := range []struct {
		minor int
		set   string
		want  bool
	}{{28, "", false}, {31, "", false}, {31, "AuthorizeNodeWithSelectors=true", true}, {32, "", true}, {33, "AuthorizeNodeWithSelectors=false", false}, {36, "", true}, {37, "", true}} {
		roles := rolesAt(t, release.Release{Major: 1, Minor: test.minor}, test.set)
		i := slices.IndexFunc(roles, func(r DefaultRole) bool { return r.Name == "system:svc-node-network" })
		if (i >= 0) != test.want {
			t.Errorf("1.%d %s: the role is there: %t, want %t", test.minor, test.set, i >= 0, test.want)
		}
		if i < 0 {
			continue
		}
		if bound := roles[i].Subjects; len(bound) != 1 || bound[0].Kind != rbacv1.GroupKind || bound[0].Name != user.NodesGroup {
			t.Errorf("1.%d %s: bound to %v", test.minor, test.set, bound)
		}
	}
}

func TestTheTableIsReadInFull(t *testing.T) {
	reader := defaultRole(t, "extension-apiserver-authentication-reader")
	rule := rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"},
		ResourceNames: []string{"extension-apiserver-authentication"},
	}
	if reader.Namespace != "kube-system" || reader.Binding != "system::extension-apiserver-authentication-reader" ||
		len(reader.Subjects) != 2 || reader.Subjects[0] != (rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "system:kube-controller-manager"}) ||
		len(reader.Rules) != 1 || reader.Rules[0].String() != rule.String() {
		t.Errorf("%+v", reader)
	}
	if edit := defaultRole(t, "edit"); edit.Labels["rbac.authorization.k8s.io/aggregate-to-admin"] != "true" ||
		edit.Aggregation.ClusterRoleSelectors[0].MatchLabels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" || edit.Binding != "" {
		t.Errorf("%+v", edit)
	}
	if cleaner := defaultRole(t, "system:controller:token-cleaner"); cleaner.Subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "token-cleaner"}) {
		t.Errorf("%+v", cleaner)
	}
	if node := defaultRole(t, "system:node"); node.Binding != "system:node" || len(node.Subjects) > 0 {
		t.Errorf("%+v", node)
	}
}

func TestALineThatIsInvalidIsNamed(t *testing.T) {
	for line, want := range map[string]string{
		"get core pods\n":                   "policy.txt:1: a line before the first role",
		"role a in\n":                       "policy.txt:1: invalid role",
		"role a\n\n# note\n  get core\n":    `policy.txt:4: invalid line of role a: ["get" "core"]`,
		"role a\n  bind robot x\n":          `policy.txt:2: invalid subject of role a: "robot"`,
		"role a\n  bind user\n":             `policy.txt:2: invalid subject of role a: ["user"]`,
		"role a\n  get core pods name x\n":  "policy.txt:2: invalid line of role a",
		"role a\n  record-events always \n": "policy.txt:2: invalid line of role a",
		"role a since 1.x\n":                "policy.txt:1: ",
	} {
		if _, err := parsePolicy(line, release.Default, func(string) bool { return true }); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", line, err, want)
		}
	}
}

// TestRolesHaveWhatUsersMayDoWithoutThem: the mode RBAC takes nothing away.
func TestRolesHaveWhatUsersMayDoWithoutThem(t *testing.T) {
	bound := func(groups ...string) []rbacv1.PolicyRule {
		roles := rolesAt(t, release.Newest, "")
		var rules []rbacv1.PolicyRule
		for _, role := range roles {
			if slices.ContainsFunc(role.Subjects, func(s rbacv1.Subject) bool { return s.Kind == "Group" && slices.Contains(groups, s.Name) }) {
				rules = append(rules, role.Rules...)
			}
		}
		return rules
	}
	for _, grant := range Basic() {
		// Kubernetes allows the keys of tokens to service accounts only.
		if ok, missing := validation.Covers(bound(grant.Group, serviceaccount.AllServiceAccountsGroup), grant.Rules); !ok {
			t.Errorf("%s has without roles %v", grant.Group, missing)
		}
	}
	node := Nodes()
	kubernetes := slices.Concat(OfCertificates(), OfNetworkPolicies(), defaultRole(t, "system:node").Rules, defaultRole(t, "system:node-proxier").Rules)
	if ok, missing := validation.Covers(kubernetes, slices.Concat(node.Rules, node.Own)); !ok {
		t.Errorf("the grant to nodes has more than system:node, system:node-proxier, certificates and network policies: %v", missing)
	}
	if ok, missing := validation.Covers(defaultRole(t, "system:kubelet-api-admin").Rules, ToNodes("").Rules); !ok {
		t.Errorf("the grant at nodes has more than system:kubelet-api-admin: %v", missing)
	}
	if ok, _ := validation.Covers(bound(user.SystemPrivilegedGroup), Everything()); !ok {
		t.Error("administrators do not have everything")
	}
}
