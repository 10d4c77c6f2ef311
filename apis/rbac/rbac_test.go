package rbac

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestRole(t *testing.T) {
	resourcetest.Rules(t, roles, `
metadata: {name: "system:reader", namespace: default}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
`, []resourcetest.Rule{
		{Name: "a name may have colons"},
		{Name: "a name must fit into a URL", Change: `metadata: {name: "a/b"}`, Want: []string{`metadata.name: Invalid value: "a/b": may not contain '/'`}},
		{Name: "no rules are accepted", Change: `rules: null`},
		{Name: "a rule has verbs", Change: `rules: [{apiGroups: [""], resources: [pods], verbs: []}]`,
			Want: []string{`rules[0].verbs: Required value: verbs must contain at least one value`}},
		{Name: "a rule has groups and resources", Change: `rules: [{verbs: [get]}]`, Want: []string{
			`rules[0].apiGroups: Required value: resource rules must supply at least one api group`,
			`rules[0].resources: Required value: resource rules must supply at least one resource`}},
		{Name: "a role grants no URLs", Change: `rules: [{nonResourceURLs: [/healthz], verbs: [get]}]`,
			Want: []string{`rules[0].nonResourceURLs: Invalid value: ["/healthz"]: namespaced rules cannot apply to non-resource URLs`}},
	})
}

func TestClusterRole(t *testing.T) {
	resourcetest.Rules(t, clusterRoles, `
metadata: {name: reader}
rules:
- {nonResourceURLs: [/healthz], verbs: [get]}
`, []resourcetest.Rule{
		{Name: "a cluster role grants URLs"},
		{Name: "a rule is about URLs or about resources", Change: `rules: [{nonResourceURLs: [/healthz], resources: [pods], verbs: [get]}]`,
			Want: []string{`rules[0].nonResourceURLs: Invalid value: ["/healthz"]: rules cannot apply to both regular resources and non-resource URLs`}},
		{Name: "an aggregation has selectors", Change: `aggregationRule: {}`,
			Want: []string{`aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil`}},
		{Name: "an aggregation's selectors are valid", Change: `aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: In}]}]}`,
			Want: []string{"aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}},
	})
}

func TestRoleBinding(t *testing.T) {
	resourcetest.Rules(t, roleBindings, `
metadata: {name: readers, namespace: default}
roleRef: {kind: ClusterRole, name: reader}
subjects:
- {kind: User, name: jane}
- {kind: Group, name: readers}
- {kind: ServiceAccount, name: default}
`, []resourcetest.Rule{
		{Name: "all kinds of subjects are accepted"},
		{Name: "the role is of a known kind", Change: `roleRef: {kind: Thing}`,
			Want: []string{`roleRef.kind: Unsupported value: "Thing": supported values: "Role", "ClusterRole"`}},
		{Name: "the role is of the group", Change: `roleRef: {apiGroup: example.com}`,
			Want: []string{`roleRef.apiGroup: Unsupported value: "example.com": supported values: "rbac.authorization.k8s.io"`}},
		{Name: "the role has a name", Change: `roleRef: {name: ""}`, Want: []string{`roleRef.name: Required value`}},
		{Name: "the role is immutable", Update: true, Change: `roleRef: {name: writer}`,
			Want: []string{`roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"writer"}: cannot change roleRef`}},
		{Name: "subjects may change", Update: true, Change: `subjects: []`},
		{Name: "a subject has a name and a known kind", Change: `subjects: [{kind: Robot}]`, Want: []string{
			`subjects[0].name: Required value`,
			`subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`}},
		{Name: "a service account is of the core group", Change: `subjects: [{kind: ServiceAccount, name: a, apiGroup: x}]`,
			Want: []string{`subjects[0].apiGroup: Unsupported value: "x": supported values: ""`}},
	})
}

func TestClusterRoleBinding(t *testing.T) {
	resourcetest.Rules(t, clusterRoleBindings, `
metadata: {name: readers}
roleRef: {kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
`, []resourcetest.Rule{
		{Name: "a service account of a namespace is accepted"},
		{Name: "a service account needs its namespace", Change: `subjects: [{kind: ServiceAccount, name: default}]`,
			Want: []string{`subjects[0].namespace: Required value`}},
		{Name: "the role is a cluster role", Change: `roleRef: {kind: Role}`,
			Want: []string{`roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`}},
	})
}
