// Package claimstatus owns the admission check of the status of ResourceClaims, which
// Kubernetes has since release 1.36 (KEP-4817): an update of the allocation or the
// reservations needs a permission of schedulers, and one of the status of devices a
// permission on their driver.
package claimstatus

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/utils/ptr"
)

// Guard adds the check to a chain of admission plugins. It is not registered as a
// plugin, so that it cannot be disabled, and it is the first to validate: in kube-apiserver
// it is part of the storage's validation, which runs before plugins validate.
func Guard(chain admission.Interface, may authorizer.UnconditionalAuthorizer) admission.Interface {
	return admission.NewChainHandler(&guard{admission.NewHandler(admission.Update), may}, chain)
}

type guard struct {
	*admission.Handler
	may authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = &guard{}

// Validate implements admission.ValidationInterface. The error is that of the storage of
// kube-apiserver.
func (g *guard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every version of the kind.
	claim, isClaim := a.GetObject().(*resourcev1.ResourceClaim)
	old, wasClaim := a.GetOldObject().(*resourcev1.ResourceClaim)
	if !isClaim || !wasClaim || a.GetSubresource() != "status" {
		return nil
	}
	request, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	errs := append(g.binding(ctx, request, &claim.Status, &old.Status), g.devices(ctx, request, &claim.Status, &old.Status)...)
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), claim.Name, errs)
}

// binding requires the verb of the request on resourceclaims/binding, in all namespaces, for
// a change of the allocation or the reservations.
func (g *guard) binding(ctx context.Context, request authorizer.Attributes, status, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if apiequality.Semantic.DeepEqual(status.Allocation, old.Allocation) && apiequality.Semantic.DeepEqual(status.ReservedFor, old.ReservedFor) {
		return nil
	}
	verb := request.GetVerb()
	if err := g.allowed(ctx, request, authorizer.AttributesRecord{Verb: verb, Subresource: resourcev1.SubresourceBinding}); err != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("status", "allocation"),
			fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, verb, err))}
	}
	return nil
}

// devices requires one of two verbs on resourceclaims/driver, by the name of the driver, for
// each driver of whose devices the status changes. The first is only for service accounts
// whose tokens are of pods on the node that the claim is allocated on. A claim that is not
// allocated has no devices.
func (g *guard) devices(ctx context.Context, request authorizer.Attributes, status, old *resourcev1.ResourceClaimStatus) field.ErrorList {
	if status.Allocation == nil {
		return nil
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + request.GetVerb()}
	if node := nodeOf(status.Allocation); node != "" && node == nodeOfAccount(request.GetUser()) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+request.GetVerb())
	}
	var errs field.ErrorList
	for _, driver := range changedDrivers(status.Devices, old.Devices) {
		refusal := func(verb string) error {
			return g.allowed(ctx, request, authorizer.AttributesRecord{
				Verb: verb, Subresource: resourcev1.SubresourceDriver, Namespace: request.GetNamespace(), Name: driver,
			})
		}
		first := refusal(verbs[0])
		if first != nil && !slices.ContainsFunc(verbs[1:], func(verb string) bool { return refusal(verb) == nil }) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, first)))
		}
	}
	return errs
}

// allowed returns an error unless the user of a request has a permission on the request's
// resource. An authorizer may fail in part and allow it all the same.
func (g *guard) allowed(ctx context.Context, request authorizer.Attributes, permission authorizer.AttributesRecord) error {
	permission.User, permission.ResourceRequest = request.GetUser(), true
	permission.APIGroup, permission.APIVersion, permission.Resource = request.GetAPIGroup(), request.GetAPIVersion(), request.GetResource()
	decision, reason, err := g.may.Authorize(ctx, permission)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil && reason != "":
		reason = fmt.Sprintf("%v: %s", err, reason)
	case err != nil:
		reason = err.Error()
	}
	return responsewriters.ForbiddenStatusError(permission, reason)
}

// device identifies an allocated device, or a share of one.
type device struct{ driver, pool, name, share string }

// changedDrivers returns the drivers of the devices that are in only one of two lists, or
// differ, sorted.
func changedDrivers(devices, old []resourcev1.AllocatedDeviceStatus) []string {
	before := map[device]*resourcev1.AllocatedDeviceStatus{}
	for i := range old {
		before[deviceOf(&old[i])] = &old[i]
	}
	changed := sets.New[string]()
	for i := range devices {
		d := deviceOf(&devices[i])
		if was := before[d]; was == nil || !apiequality.Semantic.DeepEqual(was, &devices[i]) {
			changed.Insert(d.driver)
		}
		delete(before, d)
	}
	for d := range before {
		changed.Insert(d.driver)
	}
	return sets.List(changed)
}

func deviceOf(s *resourcev1.AllocatedDeviceStatus) device {
	return device{s.Driver, s.Pool, s.Device, ptr.Deref(s.ShareID, "")}
}

// nodeOf returns the node that an allocation selects by its name, or "" if it selects nodes
// in another way.
func nodeOf(allocation *resourcev1.AllocationResult) string {
	if allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := allocation.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return ""
	}
	if f := term.MatchFields[0]; f.Key == "metadata.name" && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
		return f.Values[0]
	}
	return ""
}

// nodeOfAccount returns the node that the token of a service account names, or "" for other
// users.
func nodeOfAccount(who user.Info) string {
	if _, _, err := serviceaccount.SplitUsername(who.GetName()); err != nil {
		return ""
	}
	names := who.GetExtra()[serviceaccount.NodeNameKey]
	if len(names) != 1 || len(apivalidation.NameIsDNSSubdomain(names[0], false)) > 0 {
		return ""
	}
	return names[0]
}
