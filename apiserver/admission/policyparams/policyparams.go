// Package policyparams owns the admission check of the parameters of admission policies.
//
// The API server reads parameters with its own rights, and the expressions of a policy can
// put them into the messages of refusals. So a user who creates a policy, or changes its kind
// of parameters, must be allowed to get all objects of that kind, and a user who writes a
// binding must be allowed to read the parameters to which it refers.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#parameter-resources
package policyparams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Guard adds the check to a chain of admission plugins. It is not registered as a plugin, so
// that it cannot be disabled. The client reads policies and discovery for each check, so that
// it sees the newest.
func Guard(chain admission.Interface, may authorizer.UnconditionalAuthorizer, client kubernetes.Interface) admission.Interface {
	return admission.NewChainHandler(chain, &guard{admission.NewHandler(admission.Create, admission.Update), may, client})
}

type guard struct {
	*admission.Handler
	may    authorizer.UnconditionalAuthorizer
	client kubernetes.Interface
}

var _ admission.ValidationInterface = &guard{}

// Validate implements admission.ValidationInterface. It selects by Go type, which is the
// same for every version and every group domain of a kind.
func (g *guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	who := a.GetUserInfo()
	if a.GetSubresource() != "" || who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	obj, old := a.GetObject(), a.GetOldObject()
	if kind := paramKind(obj); kind != nil {
		if before := paramKind(old); before != nil && *before == *kind {
			return nil
		}
		return refusal(a, "paramKind", g.kind(ctx, who, kind))
	}
	if b := bindingOf(obj); b != nil && b.params != nil {
		if before := bindingOf(old); before != nil && apiequality.Semantic.DeepEqual(before.spec, b.spec) {
			return nil
		}
		return refusal(a, "paramRef", g.binding(ctx, who, b))
	}
	return nil
}

// refusal returns the error of a request whose field of the specification is refused because
// of err, as Kubernetes does, whose validation has this check.
func refusal(a admission.Attributes, name string, err error) error {
	if err == nil {
		return nil
	}
	obj, invalid := meta.Accessor(a.GetObject())
	if invalid != nil {
		return apierrors.NewInternalError(invalid)
	}
	return apierrors.NewInvalid(a.GetKind().GroupKind(), obj.GetName(), field.ErrorList{field.Forbidden(field.NewPath("spec", name), err.Error())})
}

// paramKind returns the kind of the parameters of a policy, and nil for a policy without
// parameters and for other objects.
func paramKind(obj runtime.Object) *admissionv1.ParamKind {
	switch policy := obj.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return policy.Spec.ParamKind
	case *admissionv1.MutatingAdmissionPolicy:
		return policy.Spec.ParamKind
	}
	return nil
}

// binding is what the bindings of both kinds of policies have.
type binding struct {
	policy string
	params *admissionv1.ParamRef
	spec   any
	// get reads the policy.
	get func(ctx context.Context, client kubernetes.Interface) (runtime.Object, error)
}

// bindingOf returns nil for other objects.
func bindingOf(obj runtime.Object) *binding {
	switch b := obj.(type) {
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return &binding{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec, func(ctx context.Context, client kubernetes.Interface) (runtime.Object, error) {
			return client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
		}}
	case *admissionv1.MutatingAdmissionPolicyBinding:
		return &binding{b.Spec.PolicyName, b.Spec.ParamRef, b.Spec, func(ctx context.Context, client kubernetes.Interface) (runtime.Object, error) {
			return client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
		}}
	}
	return nil
}

// anything stands for the resources of all groups and versions. A user must have rights to
// all of them if the resource of parameters is not known.
var anything = schema.GroupVersionResource{Group: "*", Version: "*", Resource: "*"}

// kind returns an error unless the user may get all objects of the kind of the parameters of
// a policy.
func (g *guard) kind(ctx context.Context, who user.Info, kind *admissionv1.ParamKind) error {
	resource, _ := g.resource(ctx, kind)
	return g.authorize(ctx, who, "get", resource, "*", "*",
		fmt.Sprintf(`must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, kind.Kind, kind.APIVersion))
}

// binding returns an error unless the user may get the parameter of a binding that refers to
// one by its name, or list those of one with a selector. Without a namespace, parameters may
// be in all namespaces.
func (g *guard) binding(ctx context.Context, who user.Info, b *binding) error {
	verb := "get"
	if b.params.Name == "" {
		verb = "list"
	}
	resource, unknown := anything, ""
	if policy, err := b.get(ctx, g.client); err != nil {
		unknown = "unable to get policy " + b.policy
		if !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).Error(err, "Failed to get the policy of a binding", "policy", b.policy)
		}
	} else if kind := paramKind(policy); kind != nil {
		if resource, err = g.resource(ctx, kind); err != nil {
			unknown = fmt.Sprintf("unable to resolve paramKind %s, %s", kind.APIVersion, kind.Kind)
		}
	}
	lacks := fmt.Sprintf("does not have %q permission on the object referenced by paramRef", verb)
	if unknown != "" {
		lacks = fmt.Sprintf("does not have %q permission for all groups, versions and resources", verb)
	}
	err := g.authorize(ctx, who, verb, resource, b.params.Namespace, b.params.Name, lacks)
	if err != nil && unknown != "" {
		return fmt.Errorf("%s to determine minimum required permissions and %w", unknown, err)
	}
	return err
}

// authorize returns an error, which says that the user lacks something, unless the user may
// use the verb on an object. The error of an authorizer is only for the log.
func (g *guard) authorize(ctx context.Context, who user.Info, verb string, resource schema.GroupVersionResource, namespace, name, lacks string) error {
	if who == nil {
		return errors.New("the request has no user who could be authorized to read parameters")
	}
	decision, _, err := g.may.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: verb, Namespace: namespace, Name: name,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, ResourceRequest: true,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to authorize", "user", who.GetName(), "verb", verb, "resource", resource, "name", name, "namespace", namespace)
	}
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return fmt.Errorf("user %q %s", who.GetName(), lacks)
}

// resource returns the resource of a kind of parameters, and an error if the server does not
// serve it. What is not known of it is "*".
func (g *guard) resource(ctx context.Context, kind *admissionv1.ParamKind) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return anything, err
	}
	served, err := g.client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if err != nil {
		return gv.WithResource("*"), err
	}
	for _, r := range served.APIResources {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") && (r.Group == "" || r.Group == gv.Group) && (r.Version == "" || r.Version == gv.Version) {
			return gv.WithResource(r.Name), nil
		}
	}
	return gv.WithResource("*"), &meta.NoKindMatchError{GroupKind: gv.WithKind(kind.Kind).GroupKind(), SearchedVersions: []string{gv.Version}}
}
