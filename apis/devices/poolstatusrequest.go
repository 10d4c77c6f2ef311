package devices

import (
	"fmt"
	"slices"
	"strconv"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// The bounds that k8s.io/api declares beside the fields, in comments of the form
// +k8s:maxItems=1000.
const (
	maxPools           = 1000
	maxPoolConditions  = 10
	maxPoolError       = 256
	maxPartitionTypes  = 32
	maxSharedCapacity  = 32
	noDevicesOfFailure = "-"
)

// poolStatusRequests ask once for the state of a driver's pools (KEP-5677).
var poolStatusRequests = resource.Type[*resourcev1alpha3.ResourcePoolStatusRequest]{
	Name: "resourcepoolstatusrequests",
	Default: func(r *resourcev1alpha3.ResourcePoolStatusRequest) {
		resource.Fill(&r.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)
	},
	ValidateCreate: func(r *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
		path := field.NewPath("spec")
		errs := validateDriverName(path.Child("driver"), r.Spec.Driver)
		if r.Spec.PoolName != nil {
			errs = append(errs, validatePool(path.Child("poolName"), *r.Spec.PoolName)...)
		}
		errs = append(errs, atLeast(path.Child("limit"), r.Spec.Limit, 1)...)
		if limit := resourcev1alpha3.ResourcePoolStatusRequestLimitMax; *r.Spec.Limit > limit {
			errs = append(errs, field.Invalid(path.Child("limit"), *r.Spec.Limit, content.MaxError(limit)))
		}
		if r.Spec.DefaultPartitionTypeAttribute != nil {
			errs = append(errs, validateFullyQualified(path.Child("defaultPartitionTypeAttribute"), *r.Spec.DefaultPartitionTypeAttribute)...)
		}
		return errs
	},
	ValidateUpdate: func(r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
		return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
	},
	RequireVersion: true,
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: func(r, old *resourcev1alpha3.ResourcePoolStatusRequest) field.ErrorList {
		path := field.NewPath("status")
		switch {
		case old.Status != nil:
			return apivalidation.ValidateImmutableField(r.Status, old.Status, path)
		case r.Status == nil:
			return nil
		}
		return validatePoolStatuses(path, r.Status)
	},
	Columns: []resource.Column[*resourcev1alpha3.ResourcePoolStatusRequest]{
		resource.Name[*resourcev1alpha3.ResourcePoolStatusRequest](),
		{Name: "Driver", Description: "The driver to query pools for.",
			Value: func(r *resourcev1alpha3.ResourcePoolStatusRequest) any { return r.Spec.Driver }},
		devicesColumn("Total", "Total number of devices across all pools.", func(p *resourcev1alpha3.PoolStatus) *int32 { return p.TotalDevices }),
		devicesColumn("Available", "Number of available devices across all pools.", func(p *resourcev1alpha3.PoolStatus) *int32 { return p.AvailableDevices }),
		devicesColumn("Allocated", "Number of allocated devices across all pools.", func(p *resourcev1alpha3.PoolStatus) *int32 { return p.AllocatedDevices }),
		devicesColumn("Unavailable", "Number of unavailable devices across all pools.", func(p *resourcev1alpha3.PoolStatus) *int32 { return p.UnavailableDevices }),
		devicesColumn("Errors", "Number of pools with validation errors.", func(p *resourcev1alpha3.PoolStatus) *int32 {
			if p.ValidationError == nil {
				return nil
			}
			return ptr.To[int32](1)
		}),
		{Name: "Pools", Type: "integer", Description: "Total number of matching pools.",
			Value: func(r *resourcev1alpha3.ResourcePoolStatusRequest) any { return int64(poolCount(r)) }},
		{Name: "Status", Description: "Processing status.",
			Value: func(r *resourcev1alpha3.ResourcePoolStatusRequest) any { return requestState(r) }},
		{Name: "Completed", Description: "Time since the observation completed.",
			Value: func(r *resourcev1alpha3.ResourcePoolStatusRequest) any {
				if c := endOf(r); c != nil && c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete {
					return c.LastTransitionTime
				}
				return "<none>"
			}},
	},
}

// devicesColumn is a column with a sum over the pools of a request.
func devicesColumn(name, description string, of func(*resourcev1alpha3.PoolStatus) *int32) resource.Column[*resourcev1alpha3.ResourcePoolStatusRequest] {
	return resource.Column[*resourcev1alpha3.ResourcePoolStatusRequest]{
		Name: name, Description: description,
		Value: func(r *resourcev1alpha3.ResourcePoolStatusRequest) any {
			if end := endOf(r); r.Status == nil || end != nil && end.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionFailed {
				return noDevicesOfFailure
			}
			sum := 0
			for i := range r.Status.Pools {
				sum += int(ptr.Deref(of(&r.Status.Pools[i]), 0))
			}
			return strconv.Itoa(sum)
		},
	}
}

// endOf returns the condition with which a request has ended, or nil.
func endOf(r *resourcev1alpha3.ResourcePoolStatusRequest) *metav1.Condition {
	if r.Status == nil {
		return nil
	}
	i := slices.IndexFunc(r.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue &&
			(c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete || c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionFailed)
	})
	if i < 0 {
		return nil
	}
	return &r.Status.Conditions[i]
}

func poolCount(r *resourcev1alpha3.ResourcePoolStatusRequest) int32 {
	if r.Status == nil {
		return 0
	}
	return ptr.Deref(r.Status.PoolCount, 0)
}

// requestState returns the state of a request as tables show it.
func requestState(r *resourcev1alpha3.ResourcePoolStatusRequest) string {
	end := endOf(r)
	switch {
	case end == nil:
		return "Pending"
	case end.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete && int(poolCount(r)) > len(r.Status.Pools):
		return fmt.Sprintf("%s (%d/%d pools)", end.Type, len(r.Status.Pools), poolCount(r))
	}
	return end.Type
}

func validatePoolStatuses(path *field.Path, s *resourcev1alpha3.ResourcePoolStatusRequestStatus) field.ErrorList {
	conditions := path.Child("conditions")
	return slices.Concat(
		requiredCount(path.Child("poolCount"), s.PoolCount),
		each(path.Child("pools"), s.Pools, maxPools, validatePoolStatus),
		tooMany(conditions, len(s.Conditions), maxPoolConditions),
		metav1validation.ValidateConditions(s.Conditions, conditions))
}

func validatePoolStatus(path *field.Path, p *resourcev1alpha3.PoolStatus) field.ErrorList {
	errs := slices.Concat(
		validateDriverName(path.Child("driver"), p.Driver),
		validatePool(path.Child("poolName"), p.PoolName),
		atLeast(path.Child("resourceSliceCount"), p.ResourceSliceCount, 1),
		atLeast(path.Child("totalDevices"), p.TotalDevices, 0),
		atLeast(path.Child("allocatedDevices"), p.AllocatedDevices, 0),
		atLeast(path.Child("availableDevices"), p.AvailableDevices, 0),
		atLeast(path.Child("unavailableDevices"), p.UnavailableDevices, 0))
	switch {
	case p.Generation == 0:
		errs = append(errs, field.Required(path.Child("generation"), ""))
	case p.Generation < 0:
		errs = append(errs, field.Invalid(path.Child("generation"), p.Generation, content.MinError(0)))
	}
	if p.NodeName != nil {
		errs = append(errs, resource.Invalid(path.Child("nodeName"), *p.NodeName, content.IsDNS1123Subdomain(*p.NodeName))...)
	}
	if p.ValidationError != nil && len(*p.ValidationError) > maxPoolError {
		errs = append(errs, field.TooLong(path.Child("validationError"), "", maxPoolError))
	}
	partitions := path.Child("partitionSummary")
	errs = append(errs, each(partitions, p.PartitionSummary, maxPartitionTypes, validatePartition)...)
	errs = append(errs, unique(partitions, p.PartitionSummary, func(s *resourcev1alpha3.PartitionTypeStatus) string { return s.Attribute + "=" + s.Type })...)
	if shared := p.ShareableSummary; shared != nil {
		at := path.Child("shareableSummary")
		errs = append(errs, slices.Concat(
			requiredCount(at.Child("fullyAvailableDevices"), shared.FullyAvailableDevices),
			requiredCount(at.Child("partiallyAvailableDevices"), shared.PartiallyAvailableDevices),
			each(at.Child("capacity"), shared.Capacity, maxSharedCapacity, validateSharedCapacity))...)
	}
	return errs
}

func validatePartition(path *field.Path, s *resourcev1alpha3.PartitionTypeStatus) field.ErrorList {
	return slices.Concat(
		resource.Required(path.Child("attribute"), s.Attribute),
		resource.Required(path.Child("type"), s.Type),
		requiredCount(path.Child("total"), s.Total),
		requiredCount(path.Child("allocatable"), s.Allocatable))
}

func validateSharedCapacity(path *field.Path, c *resourcev1alpha3.ShareableCapacityStatus) field.ErrorList {
	errs := resource.Required(path.Child("name"), c.Name)
	for _, f := range []struct {
		name    string
		missing bool
	}{{"total", c.Total == nil}, {"consumed", c.Consumed == nil}, {"available", c.Available == nil}} {
		if f.missing {
			errs = append(errs, field.Required(path.Child(f.name), ""))
		}
	}
	return errs
}

// validateDriverName requires a DNS subdomain in letters of any case.
func validateDriverName(path *field.Path, driver string) field.ErrorList {
	if driver == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, driver, content.IsDNS1123SubdomainCaseless(driver))
}

// requiredCount requires a number that is not negative.
func requiredCount(path *field.Path, n *int32) field.ErrorList {
	if n == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return atLeast(path, n, 0)
}

// atLeast requires that a number, if it is set, is not less than another.
func atLeast(path *field.Path, n *int32, lowest int32) field.ErrorList {
	if n == nil || *n >= lowest {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *n, content.MinError(lowest))}
}
