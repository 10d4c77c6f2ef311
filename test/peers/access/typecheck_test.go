package access

import (
	"context"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// checked are policies by name: of deployments and config maps, with config maps as parameters.
var checked = map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{
	"right": {Validations: []admissionregistrationv1.Validation{{Expression: "has(object.metadata.labels) && object.metadata.name != ''"}}},
	"wrong": {Validations: []admissionregistrationv1.Validation{
		{Expression: "object.spec.replicas > 1"}, {Expression: "object.none == 1", MessageExpression: "string(object.other)"},
	}},
	"wrong-type":     {Validations: []admissionregistrationv1.Validation{{Expression: "object.spec.replicas == 'x'"}}},
	"wrong-old":      {Validations: []admissionregistrationv1.Validation{{Expression: "oldObject.none == 1"}}},
	"wrong-params":   {Validations: []admissionregistrationv1.Validation{{Expression: "params.data.a == 'x' && params.none == 1"}}},
	"wrong-variable": {Variables: []admissionregistrationv1.Variable{{Name: "v", Expression: "object.none"}}, Validations: []admissionregistrationv1.Validation{{Expression: "variables.v == 1"}}},
	"wrong-condition": {
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object.none == 1"}},
		Validations:     []admissionregistrationv1.Validation{{Expression: "true"}},
	},
	"wrong-annotation": {AuditAnnotations: []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: "string(object.none)"}}},
}

// TestBothServersCheckTheTypesOfPolicies compares the status of policies.
func TestBothServersCheckTheTypesOfPolicies(t *testing.T) {
	svc, kube := startEach(t, []string{"--controllers=validatingadmissionpolicy-status", "--service-cluster-ip-range=10.96.0.0/16", "--release=" + ofKube}, nil)
	manager, err := kube.peer.StartController("kube-controller-manager", "--controllers=validatingadmissionpolicy-status-controller")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Kill)
	var found []difference.Difference
	for name, spec := range checked {
		ours, theirs := svc.typesOf(t, name, spec), kube.typesOf(t, name, spec)
		if name == "wrong" && len(theirs) < 2 {
			t.Errorf("kube-controller-manager finds nothing wrong: %v", theirs)
		}
		found = append(found, difference.Between(name, ours, theirs)...)
	}
	report(t, "types", found)
}

// typesOf returns the status of a policy when its controller has written it.
func (s *server) typesOf(t *testing.T, name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) difference.Fields {
	t.Helper()
	rule := func(group, resource string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule("apps", "deployments"), rule("", "configmaps")},
	}
	spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	policies := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	created, err := policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, launch.Patience, true, func(ctx context.Context) (bool, error) {
		created, err = policies.Get(ctx, name, metav1.GetOptions{})
		return err == nil && created.Status.TypeChecking != nil, err
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	fields, err := difference.Of(created.Status, func(_, text string) string { return text })
	if err != nil {
		t.Fatal(err)
	}
	return fields
}
