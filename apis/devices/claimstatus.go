package devices

import (
	"encoding/json"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		if len(c.Status.ReservedFor) > 0 {
			errs = append(errs, field.Forbidden(path.Child("reservedFor"), "may not be specified when `allocated` is not set"))
		}
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
	errs := tooMany(path, len(c.Status.ReservedFor), resourcev1.ResourceClaimReservedForMaxSize)
	var seen []resourcev1.ResourceClaimConsumerReference
	for i, r := range c.Status.ReservedFor {
		at := path.Index(i)
		errs = append(errs, resource.Required(at.Child("resource"), r.Resource)...)
		errs = append(errs, resource.Required(at.Child("name"), r.Name)...)
		errs = append(errs, resource.Required(at.Child("uid"), string(r.UID))...)
		if slices.ContainsFunc(seen, func(s resourcev1.ResourceClaimConsumerReference) bool { return s.UID == r.UID }) {
			errs = append(errs, field.Duplicate(at.Child("uid"), r.UID))
		}
		seen = append(seen, r)
		if c.DeletionTimestamp != nil && !slices.Contains(old.Status.ReservedFor, r) {
			errs = append(errs, field.Forbidden(at, "new reservations may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
		}
	}
	return errs
}

func validateAllocation(path *field.Path, c *resourcev1.ResourceClaim) field.ErrorList {
	a := c.Status.Allocation
	results := path.Child("devices", "results")
	errs := tooMany(results, len(a.Devices.Results), resourcev1.AllocationResultsMaxSize)
	names := requestNames(&c.Spec.Devices)
	for i, r := range a.Devices.Results {
		at := results.Index(i)
		if !slices.Contains(names, r.Request) {
			errs = append(errs, field.Invalid(at.Child("request"), r.Request, "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"))
		}
		errs = append(errs, validateDriver(at.Child("driver"), r.Driver)...)
		errs = append(errs, validatePool(at.Child("pool"), r.Pool)...)
		errs = append(errs, validateDeviceName(at.Child("device"), r.Device)...)
	}
	config := path.Child("devices", "config")
	errs = append(errs, tooMany(config, len(a.Devices.Config), 2*resourcev1.DeviceConfigMaxSize)...)
	for i := range a.Devices.Config {
		conf, at := &a.Devices.Config[i], config.Index(i)
		errs = append(errs, resource.RequiredOneOf(at.Child("source"), conf.Source, resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)...)
		errs = append(errs, validateRequestNames(at.Child("requests"), conf.Requests, names)...)
		errs = append(errs, validateConfiguration(at, &conf.DeviceConfiguration)...)
	}
	if a.NodeSelector != nil {
		errs = append(errs, validateOneNodeTerm(path.Child("nodeSelector"), a.NodeSelector)...)
	}
	return errs
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

// validateDeviceStatuses allows drivers to report on allocated devices.
func validateDeviceStatuses(path *field.Path, c *resourcev1.ResourceClaim) field.ErrorList {
	var errs field.ErrorList
	type device struct{ driver, pool, name string }
	allocated, seen := map[device]bool{}, map[device]bool{}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			allocated[device{r.Driver, r.Pool, r.Device}] = true
		}
	}
	for i, d := range c.Status.Devices {
		at, key := path.Index(i), device{d.Driver, d.Pool, d.Device}
		if !allocated[key] {
			errs = append(errs, field.Invalid(at, d.Device, "must be an allocated device in the claim"))
		}
		if d.ShareID == nil && seen[key] {
			errs = append(errs, field.Duplicate(at, d.Device))
		}
		seen[key] = true
		errs = append(errs, tooMany(at.Child("conditions"), len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions)...)
		errs = append(errs, metav1validation.ValidateConditions(d.Conditions, at.Child("conditions"))...)
		if d.Data != nil && len(d.Data.Raw) > 0 {
			errs = append(errs, validateParameters(at.Child("data"), d.Data.Raw, resourcev1.AllocatedDeviceStatusDataMaxLength)...)
		}
		errs = append(errs, validateNetworkData(at.Child("networkData"), d.NetworkData)...)
	}
	return errs
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
	errs = append(errs, tooMany(path.Child("ips"), len(d.IPs), resourcev1.NetworkDeviceDataMaxIPs)...)
	for i, ip := range d.IPs {
		at := path.Child("ips").Index(i)
		errs = append(errs, resource.CIDR(at, ip)...)
		if slices.Contains(d.IPs[:i], ip) {
			errs = append(errs, field.Duplicate(at, ip))
		}
	}
	return errs
}

func validateDeviceName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, name, validation.IsDNS1123Label(name))
}

// isObject reports whether data is a JSON object.
func isObject(data []byte) bool {
	var object map[string]any
	return json.Unmarshal(data, &object) == nil && object != nil
}
