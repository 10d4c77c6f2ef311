package policyparams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

var (
	jane    = &user.DefaultInfo{Name: "jane", Groups: []string{"g"}}
	secrets = &admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
	widgets = &admissionv1.ParamKind{APIVersion: "example.com/v1", Kind: "Widget"}
)

func validating(kind *admissionv1.ParamKind) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.ParamKind = kind
	return p
}

func mutating(kind *admissionv1.ParamKind) *admissionv1.MutatingAdmissionPolicy {
	p := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.ParamKind = kind
	return p
}

func named(namespace, name string) *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Namespace: namespace, Name: name, ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
}

func selected(namespace string) *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Namespace: namespace, Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
}

func validatingBinding(policy string, params *admissionv1.ParamRef) *admissionv1.ValidatingAdmissionPolicyBinding {
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	b.Spec.PolicyName, b.Spec.ParamRef = policy, params
	return b
}

func mutatingBinding(policy string, params *admissionv1.ParamRef) *admissionv1.MutatingAdmissionPolicyBinding {
	b := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	b.Spec.PolicyName, b.Spec.ParamRef = policy, params
	return b
}

// inNamed changes the name of a policy.
func inNamed[T metav1.Object](name string, obj T) T {
	obj.SetName(name)
	return obj
}

// changed returns an object after a change.
func changed[T runtime.Object](obj T, change func(T)) T {
	obj = obj.DeepCopyObject().(T)
	change(obj)
	return obj
}

// stored are the policies to which bindings refer.
func stored() []runtime.Object {
	return []runtime.Object{
		inNamed("secrets", validating(secrets)), inNamed("widgets", validating(widgets)), inNamed("none", validating(nil)),
		inNamed("unserved", validating(&admissionv1.ParamKind{APIVersion: "v1", Kind: "None"})),
		inNamed("malformed", validating(&admissionv1.ParamKind{APIVersion: "a/b/c", Kind: "None"})),
		inNamed("mutating", mutating(secrets)),
	}
}

// newGuard returns a guard of a server with the stored policies, secrets and widgets.
func newGuard(may authorizer.UnconditionalAuthorizer) admission.ValidationInterface {
	client := fake.NewClientset(stored()...)
	client.Discovery().(*discoveryfake.FakeDiscovery).Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/secret", Kind: "Secret"}, {Name: "pods", Kind: "Pod"}, {Name: "secrets", Kind: "Secret"}}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "gadgets", Group: "other.com", Kind: "Widget"}, {Name: "widgets", Kind: "Widget"}}},
	}
	return Guard(admission.NewChainHandler(), may, client).(admission.ValidationInterface)
}

// deciding answers all questions with a decision, and notes the last one.
type deciding struct {
	decision authorizer.Decision
	err      error
	asked    string
}

func (d *deciding) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	d.asked = fmt.Sprintf("%s %s %s of %s %q in %q", a.GetUser().GetName(), a.GetVerb(), a.GetResource(),
		schema.GroupVersion{Group: a.GetAPIGroup(), Version: a.GetAPIVersion()}, a.GetName(), a.GetNamespace())
	return d.decision, "", d.err
}

// attributes are those of a creation or, if there is an old object, of an update.
func attributes(obj, old runtime.Object, subresource string, who user.Info) admission.Attributes {
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
	gv := admissionv1.SchemeGroupVersion
	return admission.NewAttributesRecord(obj, old, gv.WithKind(kind), "", obj.(metav1.Object).GetName(), gv.WithResource("x"), subresource, operation, nil, true, who)
}

func TestAUserWritesOnlyPoliciesAndBindingsOfWhichItMayReadTheParameters(t *testing.T) {
	const ofPolicy = `.admissionregistration.k8s.io "p" is invalid: spec.paramKind: Forbidden: user "jane" must have "get" permission on all objects of the referenced paramKind `
	const ofBinding = `.admissionregistration.k8s.io "b" is invalid: spec.paramRef: Forbidden: `
	const object = `user "jane" does not have "get" permission on the object referenced by paramRef`
	const everything = ` to determine minimum required permissions and user "jane" does not have "get" permission for all groups, versions and resources`
	for _, test := range []struct {
		rule        string
		obj         runtime.Object
		asks, wants string
	}{
		{"a validating policy of a built-in kind", validating(secrets), `jane get secrets of v1 "*" in "*"`, "ValidatingAdmissionPolicy" + ofPolicy + "(kind=Secret, apiVersion=v1)"},
		{"a mutating policy of a custom kind", mutating(widgets), `jane get widgets of example.com/v1 "*" in "*"`, "MutatingAdmissionPolicy" + ofPolicy + "(kind=Widget, apiVersion=example.com/v1)"},
		{
			"a policy of a kind that is not served", validating(&admissionv1.ParamKind{APIVersion: "v1", Kind: "None"}),
			`jane get * of v1 "*" in "*"`, "ValidatingAdmissionPolicy" + ofPolicy + "(kind=None, apiVersion=v1)",
		},
		{
			"a policy of a group that is not served", mutating(&admissionv1.ParamKind{APIVersion: "none.com/v1", Kind: "None"}),
			`jane get * of none.com/v1 "*" in "*"`, "MutatingAdmissionPolicy" + ofPolicy + "(kind=None, apiVersion=none.com/v1)",
		},
		{
			"a policy of a version that is none", validating(&admissionv1.ParamKind{APIVersion: "a/b/c", Kind: "None"}),
			`jane get * of */* "*" in "*"`, "ValidatingAdmissionPolicy" + ofPolicy + "(kind=None, apiVersion=a/b/c)",
		},
		{"a validating binding to a name", validatingBinding("secrets", named("ns", "s")), `jane get secrets of v1 "s" in "ns"`, "ValidatingAdmissionPolicyBinding" + ofBinding + object},
		{"a mutating binding to a name", mutatingBinding("mutating", named("ns", "s")), `jane get secrets of v1 "s" in "ns"`, "MutatingAdmissionPolicyBinding" + ofBinding + object},
		{"a binding to a name in any namespace", validatingBinding("widgets", named("", "w")), `jane get widgets of example.com/v1 "w" in ""`, "ValidatingAdmissionPolicyBinding" + ofBinding + object},
		{
			"a binding to labels", mutatingBinding("mutating", selected("ns")), `jane list secrets of v1 "" in "ns"`,
			"MutatingAdmissionPolicyBinding" + ofBinding + strings.Replace(object, "get", "list", 1),
		},
		{
			"a binding to labels in any namespace", validatingBinding("secrets", selected("")), `jane list secrets of v1 "" in ""`,
			"ValidatingAdmissionPolicyBinding" + ofBinding + strings.Replace(object, "get", "list", 1),
		},
		{
			"a binding of a policy that does not exist", validatingBinding("mutating", named("ns", "s")), `jane get * of */* "s" in "ns"`,
			"ValidatingAdmissionPolicyBinding" + ofBinding + "unable to get policy mutating" + everything,
		},
		{
			"a mutating binding of a policy that does not exist", mutatingBinding("secrets", named("ns", "s")), `jane get * of */* "s" in "ns"`,
			"MutatingAdmissionPolicyBinding" + ofBinding + "unable to get policy secrets" + everything,
		},
		{"a binding of a policy without parameters", validatingBinding("none", named("ns", "s")), `jane get * of */* "s" in "ns"`, "ValidatingAdmissionPolicyBinding" + ofBinding + object},
		{
			"a binding of a policy of a kind that is not served", validatingBinding("unserved", named("ns", "s")), `jane get * of v1 "s" in "ns"`,
			"ValidatingAdmissionPolicyBinding" + ofBinding + "unable to resolve paramKind v1, None" + everything,
		},
		{
			"a binding of a policy of a version that is none", validatingBinding("malformed", named("ns", "s")), `jane get * of */* "s" in "ns"`,
			"ValidatingAdmissionPolicyBinding" + ofBinding + "unable to resolve paramKind a/b/c, None" + everything,
		},
	} {
		t.Run(test.rule, func(t *testing.T) {
			allow, deny := &deciding{decision: authorizer.DecisionAllow}, &deciding{decision: authorizer.DecisionNoOpinion}
			if err := newGuard(allow).Validate(t.Context(), attributes(test.obj, nil, "", jane), nil); err != nil || allow.asked != test.asks {
				t.Errorf("asks for %s: %v\nwant %s", allow.asked, err, test.asks)
			}
			err := newGuard(deny).Validate(t.Context(), attributes(test.obj, nil, "", jane), nil)
			status := apierrors.APIStatus(nil)
			if !errors.As(err, &status) || err.Error() != test.wants || status.Status().Code != http.StatusUnprocessableEntity {
				t.Errorf("got  %v\nwant %s", err, test.wants)
			}
		})
	}
}

func TestParametersAreAuthorizedWhenTheyChange(t *testing.T) {
	policy, bound := validating(secrets), validatingBinding("secrets", named("ns", "s"))
	mutatingPolicy, mutatingBound := mutating(secrets), mutatingBinding("mutating", selected("ns"))
	administrator := &user.DefaultInfo{Name: "a", Groups: []string{user.SystemPrivilegedGroup}}
	for _, test := range []struct {
		rule        string
		obj, old    runtime.Object
		subresource string
		who         user.Info
		asks        bool
	}{
		{"a policy without parameters", validating(nil), nil, "", jane, false},
		{"a binding without parameters", mutatingBinding("mutating", nil), nil, "", jane, false},
		{"another kind", &admissionv1.ValidatingWebhookConfiguration{}, nil, "", jane, false},
		{"a policy of an administrator", policy, nil, "", administrator, false},
		{"a binding of an administrator", bound, nil, "", administrator, false},
		{"the status of a policy", validating(secrets), validating(widgets), "status", jane, false},
		{"a label of a policy", policy, changed(policy, func(p *admissionv1.ValidatingAdmissionPolicy) { p.Labels = map[string]string{"a": "b"} }), "", jane, false},
		{"a finalizer of a binding", bound, changed(bound, func(b *admissionv1.ValidatingAdmissionPolicyBinding) { b.Finalizers = []string{"a/b"} }), "", jane, false},
		{"an owner of a mutating binding", mutatingBound, changed(mutatingBound, func(b *admissionv1.MutatingAdmissionPolicyBinding) {
			b.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
		}), "", jane, false},
		{"another field of a policy", mutatingPolicy, changed(mutatingPolicy, func(p *admissionv1.MutatingAdmissionPolicy) { p.Spec.FailurePolicy = ptr.To(admissionv1.Ignore) }), "", jane, false},
		{"another kind of parameters", policy, validating(widgets), "", jane, true},
		{"the first kind of parameters", mutatingPolicy, mutating(nil), "", jane, true},
		{"no parameters any more", validating(nil), policy, "", jane, false},
		{"another name of a parameter", bound, validatingBinding("secrets", named("ns", "t")), "", jane, true},
		{"another namespace of parameters", mutatingBound, mutatingBinding("mutating", selected("other")), "", jane, true},
		{"the first parameter", bound, validatingBinding("secrets", nil), "", jane, true},
		{"another policy", bound, validatingBinding("widgets", named("ns", "s")), "", jane, true},
		{"no parameter any more", mutatingBinding("mutating", nil), mutatingBound, "", jane, false},
		{"what else a binding has", bound, changed(bound, func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{}
		}), "", jane, true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			deny := &deciding{decision: authorizer.DecisionNoOpinion}
			err := newGuard(deny).Validate(t.Context(), attributes(test.obj, test.old, test.subresource, test.who), nil)
			if (deny.asked != "") != test.asks || (err != nil) != test.asks {
				t.Errorf("asked %q, and answered %v", deny.asked, err)
			}
		})
	}
}

func TestTheDecisionOfAnAuthorizerThatFailsCounts(t *testing.T) {
	for decision, permits := range map[authorizer.Decision]bool{authorizer.DecisionNoOpinion: false, authorizer.DecisionAllow: true} {
		failing := &deciding{decision: decision, err: errors.New("dial tcp 10.0.0.1:443: connection refused")}
		err := newGuard(failing).Validate(t.Context(), attributes(validating(secrets), nil, "", jane), nil)
		if (err == nil) != permits || err != nil && strings.Contains(err.Error(), "10.0.0.1") {
			t.Errorf("decision %v: %v", decision, err)
		}
	}
}

func TestARequestWithoutAUserReadsNoParameters(t *testing.T) {
	for _, obj := range []runtime.Object{validating(secrets), mutatingBinding("mutating", selected("ns"))} {
		if err := newGuard(&deciding{decision: authorizer.DecisionAllow}).Validate(t.Context(), attributes(obj, nil, "", nil), nil); err == nil {
			t.Errorf("%T is not refused", obj)
		}
	}
}
