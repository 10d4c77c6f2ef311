package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

var resourceClaims = resource.Type[*resourcev1.ResourceClaim]{
	Name: "resourceclaims", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[resourcev1.ResourceClaim, resourcev1beta2.ResourceClaim](),
		resource.Convert(claimFromV1beta1, claimToV1beta1),
	},
	Default: func(c *resourcev1.ResourceClaim) { defaultClaim(&c.Spec) },
	ValidateCreate: func(c *resourcev1.ResourceClaim) field.ErrorList {
		return validateClaim(field.NewPath("spec"), &c.Spec)
	},
	ValidateUpdate: func(c, old *resourcev1.ResourceClaim) field.ErrorList {
		return apivalidation.ValidateImmutableField(c.Spec, old.Spec, field.NewPath("spec"))
	},
	BeginCreate: func(ctx context.Context, env *resource.Env, c *resourcev1.ResourceClaim, _ bool) (func(bool), error) {
		return nothing, allowAdmin(ctx, env, c, "ResourceClaim", field.NewPath("spec"), &c.Spec)
	},
	Status:         true,
	StatusOnly:     true,
	PrepareStatus:  dropDeallocated,
	ValidateStatus: validateClaimStatus,
	RestrictStatus: allowAdminResults,
	Columns: []resource.Column[*resourcev1.ResourceClaim]{
		resource.Name[*resourcev1.ResourceClaim](),
		{Name: "State", Description: "A summary of the current state (allocated, pending, reserved, etc.).",
			Value: func(c *resourcev1.ResourceClaim) any { return claimState(c) }},
		resource.Age[*resourcev1.ResourceClaim](),
	},
}

// claimState lists what holds for a claim.
func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
		if len(c.Status.ReservedFor) > 0 {
			states = append(states, "reserved")
		}
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

func defaultClaim(spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			defaultAmount(&e.AllocationMode, &e.Count)
			defaultTolerations(e.Tolerations)
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			defaultAmount(&s.AllocationMode, &s.Count)
			defaultTolerations(s.Tolerations)
		}
	}
}

// defaultAmount requests one device.
func defaultAmount(mode *resourcev1.DeviceAllocationMode, count *int64) {
	resource.FillEmpty(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		resource.FillEmpty(count, 1)
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		resource.FillEmpty(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func nothing(bool) {}

// allowAdmin refuses requests for administrative access to devices that are in use,
// unless the namespace has the label that an administrator sets to allow them.
func allowAdmin(ctx context.Context, env *resource.Env, obj metav1.Object, kind string, path *field.Path, spec *resourcev1.ResourceClaimSpec) error {
	var errs field.ErrorList
	for i, r := range spec.Devices.Requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			errs = append(errs, field.Forbidden(path.Child("devices", "requests").Index(i).Child("exactly", "adminAccess"), adminRule))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	allowed, err := allowsAdmin(ctx, env, obj.GetNamespace())
	if err != nil || allowed {
		return err
	}
	return apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind(kind).GroupKind(), obj.GetName(), errs)
}

// allowsAdmin reports whether claims of a namespace may have administrative access.
func allowsAdmin(ctx context.Context, env *resource.Env, namespace string) (bool, error) {
	got, err := env.Objects(corev1.Resource("namespaces")).Get(ctx, "", namespace)
	if err != nil {
		return false, fmt.Errorf("read namespace %s to check for administrative access: %w", namespace, err)
	}
	return got.(*corev1.Namespace).Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true", nil
}

// allowAdminResults is allowAdmin for the first allocation: another writer than the
// scheduler might grant what the claim has not asked for.
func allowAdminResults(env *resource.Env, c, old *resourcev1.ResourceClaim) field.ErrorList {
	if c.Status.Allocation == nil || old.Status.Allocation != nil {
		return nil
	}
	results := c.Status.Allocation.Devices.Results
	i := slices.IndexFunc(results, func(r resourcev1.DeviceRequestAllocationResult) bool { return ptr.Deref(r.AdminAccess, false) })
	if i < 0 {
		return nil
	}
	path := field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
	allowed, err := allowsAdmin(context.Background(), env, c.Namespace)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(path, err)}
	case allowed:
		return nil
	}
	return field.ErrorList{field.Forbidden(path, adminRule)}
}

// adminRule is the message for claims that may not have administrative access.
const adminRule = "admin access to devices requires the `" + resourcev1.DRAAdminNamespaceLabelKey + ": true` label on the containing namespace"
