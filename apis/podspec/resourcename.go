package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// countedResources are the resources whose quantities must be integers.
var countedResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
	corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
}

// quotaResources are the resources without a domain that a quota can limit.
var quotaResources = append([]corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}, countedResources...)

// IsQuotaResource reports whether a quota can limit the resource, whose name has no domain.
func IsQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains(quotaResources, name) || IsHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ValidateResourceName requires a known name, or a name with a domain.
func ValidateResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := resource.Invalid(path, string(name), validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(string(name), "/") && !IsQuotaResource(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.Invalid(path, string(name), "must be a standard resource type or fully qualified")}
	}
	return nil
}

// isCounted reports whether quantities of the resource must be integers.
func isCounted(name corev1.ResourceName) bool {
	return slices.Contains(countedResources, name) || IsExtendedResource(name)
}

// ValidatePositive requires an amount above zero.
func ValidatePositive(amount quantity.Quantity, path *field.Path) field.ErrorList {
	if amount.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than zero")}
	}
	return nil
}
