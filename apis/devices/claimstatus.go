package devices

import (
	"context"
	"math"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// validateClaimStatus allows an allocation to be set and, once no consumer has reserved
// the claim, to be removed, but not to be changed.
func validateClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	path := field.NewPath("status")
	errs := validateReservations(path.Child("reservedFor"), c, old)
	allocation := path.Child("allocation")
	switch {
	case c.Status.Allocation == nil:
	case old.Status.Allocation != nil:
		if !apiequality.Semantic.DeepEqual(c.Status.Allocation, old.Status.Allocation) {
			errs = append(errs, field.Invalid(allocation, "<value omitted>", "field is immutable"))
		}
	default:
		errs = append(errs, validateAllocation(allocation, c)...)
	}
	return append(errs, validateDeviceStatuses(path.Child("devices"), c)...)
}

func validateReservations(path *field.Path, c, old *resourcev1.ResourceClaim) field.ErrorList {
	errs := each(path, c.Status.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, func(at *field.Path, r *resourcev1.ResourceClaimConsumerReference) field.ErrorList {
		return slices.Concat(
			resource.Required(at.Child("resource"), r.Resource),
			resource.Required(at.Child("name"), r.Name),
			resource.Required(at.Child("uid"), string(r.UID)))
	})
	errs = append(errs, unique(path, c.Status.ReservedFor, func(r *resourcev1.ResourceClaimConsumerReference) types.UID { return r.UID })...)
	added := func(r resourcev1.ResourceClaimConsumerReference) bool {
		return !slices.Contains(old.Status.ReservedFor, r)
	}
	switch {
	case len(c.Status.ReservedFor) == 0:
	case c.Status.Allocation == nil:
		errs = append(errs, field.Forbidden(path, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil && slices.ContainsFunc(c.Status.ReservedFor, added):
		errs = append(errs, field.Forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
	}
	return errs
}

func validateAllocation(path *field.Path, c *resourcev1.ResourceClaim) field.ErrorList {
	devices, names := path.Child("devices"), requestNames(&c.Spec.Devices)
	a := c.Status.Allocation
	errs := each(devices.Child("results"), a.Devices.Results, resourcev1.AllocationResultsMaxSize, func(at *field.Path, r *resourcev1.DeviceRequestAllocationResult) field.ErrorList {
		return slices.Concat(
			validateRequestName(at.Child("request"), r.Request, names),
			validateDevicePlace(at, r.Driver, r.Pool, r.Device),
			validateBinding(at, r.BindingConditions, r.BindingFailureConditions),
			validateShare(at.Child("shareID"), (*string)(r.ShareID)))
	})
	errs = append(errs, each(devices.Child("config"), a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, func(at *field.Path, conf *resourcev1.DeviceAllocationConfiguration) field.ErrorList {
		return slices.Concat(
			resource.RequiredOneOf(at.Child("source"), conf.Source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass),
			validateRequestNames(at.Child("requests"), conf.Requests, names),
			validateConfiguration(at, &conf.DeviceConfiguration, false))
	})...)
	if a.NodeSelector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

// validateDevicePlace validates what names a device in the cluster.
func validateDevicePlace(path *field.Path, driver, pool, device string) field.ErrorList {
	return slices.Concat(
		validateDriver(path.Child("driver"), driver),
		validatePool(path.Child("pool"), pool),
		validateLabel(path.Child("device"), device))
}

// validateShare validates the UID of a share of a device, if there is one.
func validateShare(path *field.Path, id *string) field.ErrorList {
	return validate.UUID(context.Background(), operation.Operation{}, path, id, nil)
}

func requestNames(claim *resourcev1.DeviceClaim) []string {
	var names []string
	for _, r := range claim.Requests {
		names = append(names, r.Name)
		for _, s := range r.FirstAvailable {
			names = append(names, r.Name+"/"+s.Name)
		}
	}
	return names
}

// dropDeallocated removes the entries of status.devices for devices that an update
// deallocates: clients that deallocate a claim may not know this field.
func dropDeallocated(_ *resource.Env, c, old *resourcev1.ResourceClaim) {
	before, now := allocatedDevices(old), allocatedDevices(c)
	c.Status.Devices = slices.DeleteFunc(c.Status.Devices, func(d resourcev1.AllocatedDeviceStatus) bool {
		device := deviceOf(&d)
		return before[device] && !now[device]
	})
	if len(c.Status.Devices) == 0 {
		c.Status.Devices = nil
	}
}

// allocatedDevices holds the devices that are allocated to a claim.
func allocatedDevices(c *resourcev1.ResourceClaim) map[string]bool {
	allocated := map[string]bool{}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			allocated[sharedDevice(r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, "")))] = true
		}
	}
	return allocated
}

// deviceOf returns the device that a driver reports on.
func deviceOf(d *resourcev1.AllocatedDeviceStatus) string {
	return sharedDevice(d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, ""))
}

// sharedDevice names a device in the cluster, or a share of it.
func sharedDevice(driver, pool, device, share string) string {
	return strings.TrimSuffix(strings.Join([]string{driver, pool, device, share}, "/"), "/")
}

// validateDeviceStatuses allows drivers to report on allocated devices.
func validateDeviceStatuses(path *field.Path, c *resourcev1.ResourceClaim) field.ErrorList {
	allocated := allocatedDevices(c)
	errs := each(path, c.Status.Devices, math.MaxInt, func(at *field.Path, d *resourcev1.AllocatedDeviceStatus) field.ErrorList {
		errs := append(validateDevicePlace(at, d.Driver, d.Pool, d.Device), validateShare(at.Child("shareID"), d.ShareID)...)
		if !allocated[deviceOf(d)] {
			errs = append(errs, field.Invalid(at, deviceOf(d), "must be an allocated device in the claim"))
		}
		conditions := at.Child("conditions")
		errs = append(errs, tooMany(conditions, len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)...)
		errs = append(errs, metav1validation.ValidateConditions(d.Conditions, conditions)...)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			errs = append(errs, validateParameters(at.Child("data"), d.Data.Raw, resourcev1.AllocatedDeviceStatusDataMaxLength)...)
		}
		return append(errs, validateNetworkData(at.Child("networkData"), d.NetworkData)...)
	})
	return append(errs, unique(path, c.Status.Devices, deviceOf)...)
}

func validateNetworkData(path *field.Path, d *resourcev1.NetworkDeviceData) field.ErrorList {
	if d == nil {
		return nil
	}
	var errs field.ErrorList
	if len(d.InterfaceName) > resourcev1.NetworkDeviceDataInterfaceNameMaxLength {
		errs = append(errs, field.TooLong(path.Child("interfaceName"), "", resourcev1.NetworkDeviceDataInterfaceNameMaxLength))
	}
	if len(d.HardwareAddress) > resourcev1.NetworkDeviceDataHardwareAddressMaxLength {
		errs = append(errs, field.TooLong(path.Child("hardwareAddress"), "", resourcev1.NetworkDeviceDataHardwareAddressMaxLength))
	}
	ips := path.Child("ips")
	errs = append(errs, each(ips, d.IPs, resourcev1.NetworkDeviceDataMaxIPs, func(at *field.Path, ip *string) field.ErrorList {
		return validation.IsValidInterfaceAddress(at, *ip)
	})...)
	return append(errs, unique(ips, d.IPs, func(ip *string) string { return *ip })...)
}
