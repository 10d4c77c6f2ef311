package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestTheEmptySelectorMeansTheSameInBothVersions(t *testing.T) {
	app := metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	marked := *app.DeepCopy()
	marked.MatchExpressions = emptySelector(metav1.LabelSelectorOpExists).MatchExpressions
	for _, test := range []struct {
		rule         string
		v1, v1beta1  *metav1.LabelSelector
		backAndForth bool
	}{
		{rule: "unset selects none", backAndForth: true},
		{rule: "all pods", v1: &metav1.LabelSelector{}, v1beta1: emptySelector(metav1.LabelSelectorOpDoesNotExist), backAndForth: true},
		{rule: "no pods", v1: emptySelector(metav1.LabelSelectorOpExists), v1beta1: &metav1.LabelSelector{}, backAndForth: true},
		{rule: "some pods", v1: &app, v1beta1: &app, backAndForth: true},
		{rule: "the label beside other requirements says nothing", v1: &app, v1beta1: &marked},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var v1 policyv1.PodDisruptionBudget
			if err := budgetFromV1beta1(&policyv1beta1.PodDisruptionBudget{Spec: policyv1beta1.PodDisruptionBudgetSpec{Selector: test.v1beta1}}, &v1); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.v1, v1.Spec.Selector, cmp.Transformer("empty", nilIfEmpty)); diff != "" {
				t.Errorf("v1 (-want +got):\n%s", diff)
			}
			if !test.backAndForth {
				return
			}
			var beta policyv1beta1.PodDisruptionBudget
			if err := budgetToV1beta1(&v1, &beta); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.v1beta1, beta.Spec.Selector); diff != "" {
				t.Errorf("v1beta1 (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLabelOfEmptySelectorsIsRemovedBesideOtherRequirements(t *testing.T) {
	const none = `{matchExpressions: [{key: pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match, operator: Exists}]}`
	const marked = `{matchLabels: {app: a}, matchExpressions: [{key: b, operator: Exists}, {key: pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match, operator: Exists}]}`
	const unmarked = `{matchLabels: {app: a}, matchExpressions: [{key: b, operator: Exists}]}`
	k := podDisruptionBudgets.Kind()
	withSelector := func(selector string) *policyv1.PodDisruptionBudget {
		return resourcetest.Object(t, k, "metadata: {name: a, namespace: default}", "spec: {selector: "+selector+"}").(*policyv1.PodDisruptionBudget)
	}
	for _, test := range []struct{ rule, was, selector, want string }{
		{"on create", "", marked, unmarked},
		{"on update", unmarked, marked, unmarked},
		{"not if it is stored so", marked, marked, marked},
		{"not if it means no pods", "", none, none},
		{"all pods have no label", "", `{}`, `{}`},
		{"a selector may be missing", "", `null`, `null`},
		{"alone it may exclude nothing", "", `{matchExpressions: [{key: pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match, operator: DoesNotExist}]}`, `{}`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			b := withSelector(test.selector)
			if test.was == "" {
				k.PrepareCreate(t.Context(), resourcetest.Env(), b)
			} else {
				k.PrepareUpdate(t.Context(), resourcetest.Env(), b, withSelector(test.was))
			}
			if diff := cmp.Diff(withSelector(test.want).Spec.Selector, b.Spec.Selector, cmp.Transformer("empty", nilIfEmpty)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func nilIfEmpty(requirements []metav1.LabelSelectorRequirement) []metav1.LabelSelectorRequirement {
	if len(requirements) == 0 {
		return nil
	}
	return requirements
}

func TestPodSecurityPolicy(t *testing.T) {
	resourcetest.Rules(t, podSecurityPolicies, `
metadata: {name: restricted}
spec:
  seLinux: {rule: RunAsAny}
  runAsUser: {rule: MustRunAsNonRoot}
  fsGroup: {rule: MustRunAs, ranges: [{min: 1, max: 10}]}
  supplementalGroups: {rule: RunAsAny}
  volumes: [configMap, emptyDir]
  requiredDropCapabilities: [NET_ADMIN]
`, []resourcetest.Rule{
		{Name: "a policy is accepted"},
		{Name: "rules are known", Change: `spec: {seLinux: {rule: Any}}`, Want: []string{`spec.seLinux.rule: Unsupported value: "Any": supported values: "MustRunAs", "RunAsAny"`}},
		{Name: "a range has an order", Change: `spec: {fsGroup: {ranges: [{min: 5, max: 1}]}}`,
			Want: []string{`spec.fsGroup.ranges[0]: Invalid value: {"min":5,"max":1}: min cannot be greater than max`}},
		{Name: "a capability is dropped or added", Change: `spec: {allowedCapabilities: [NET_ADMIN]}`,
			Want: []string{`spec.allowedCapabilities: Invalid value: "NET_ADMIN": capability is also listed in requiredDropCapabilities`}},
		{Name: "sysctls do not overlap", Change: `spec: {allowedUnsafeSysctls: ["kernel.*"], forbiddenSysctls: [kernel.msgmax]}`,
			Want: []string{`spec.allowedUnsafeSysctls[0]: Invalid value: "kernel.*": sysctl overlaps with kernel.msgmax`}},
		{Name: "a path has a prefix", Change: `spec: {allowedHostPaths: [{readOnly: true}]}`, Want: []string{"spec.allowedHostPaths[0].pathPrefix: Required value: is required"}},
		{Name: "privileges by default need permission", Change: `spec: {allowPrivilegeEscalation: false, defaultAllowPrivilegeEscalation: true}`,
			Want: []string{"spec.defaultAllowPrivilegeEscalation: Invalid value: true: Cannot set DefaultAllowPrivilegeEscalation to true without also setting AllowPrivilegeEscalation to true"}},
		{Name: "a default class is allowed", Change: `spec: {runtimeClass: {allowedRuntimeClassNames: [a], defaultRuntimeClassName: b}}`,
			Want: []string{`spec.runtimeClass.allowedRuntimeClassNames: Required value: default "b" must be present`}},
	})
}

func TestV1beta1AllowsNegativeCountsInTheStatus(t *testing.T) {
	obj := &policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: -1, Conditions: []metav1.Condition{{}}}}
	conditions := validateStatusV1beta1("status", obj, obj)
	if len(conditions) == 0 {
		t.Error("no errors for a condition without fields")
	}
	if errs := validatePodDisruptionBudgetStatus(obj, obj); len(errs) != len(conditions)+1 {
		t.Errorf("errors in v1: %v, in v1beta1: %v", errs, conditions)
	}
}
