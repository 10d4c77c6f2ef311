package storage

import (
	"context"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// maxCSIName is the greatest length of a driver's name where it is used.
const maxCSIName = 63

// The bounds of a requested token's life and of a driver's reports, in seconds.
const (
	minTokenLife          = 10 * 60
	maxTokenLife    int64 = 1 << 32
	minUpdatePeriod       = 10
)

var csiDrivers = resource.Type[*storagev1.CSIDriver]{
	Name: "csidrivers", ReturnDeleted: true,
	Versions: []resource.Version{resource.Alike[storagev1.CSIDriver, storagev1beta1.CSIDriver]()},
	Default: func(d *storagev1.CSIDriver) {
		spec := &d.Spec
		resource.Fill(&spec.AttachRequired, true)
		resource.Fill(&spec.PodInfoOnMount, false)
		resource.Fill(&spec.StorageCapacity, false)
		resource.Fill(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
		resource.Fill(&spec.RequiresRepublish, false)
		resource.Fill(&spec.SELinuxMount, false)
		if len(spec.VolumeLifecycleModes) == 0 {
			spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
		}
	},
	Validate: validateCSIDriver,
	ValidateUpdate: func(d, old *storagev1.CSIDriver) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(d.Spec.AttachRequired, old.Spec.AttachRequired, path.Child("attachRequired"))
		return append(errs, apivalidation.ValidateImmutableField(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, path.Child("volumeLifecycleModes"))...)
	},
	// The first change begins to count.
	PrepareUpdate: func(_ context.Context, _ *resource.Env, d, old *storagev1.CSIDriver) {
		if !apiequality.Semantic.DeepEqual(d.Spec, old.Spec) {
			d.Generation = old.Generation + 1
		}
	},
	RequireVersion: true,
	Columns: []resource.Column[*storagev1.CSIDriver]{
		resource.Name[*storagev1.CSIDriver](),
		driverFlag("AttachRequired", "attachRequired", func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }),
		driverFlag("PodInfoOnMount", "podInfoOnMount", func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }),
		driverFlag("StorageCapacity", "storageCapacity", func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }),
		{Name: "TokenRequests", Description: driverDoc["tokenRequests"], Value: func(d *storagev1.CSIDriver) any { return tokensCell(d.Spec.TokenRequests) }},
		driverFlag("RequiresRepublish", "requiresRepublish", func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }),
		{Name: "Modes", Description: driverDoc["volumeLifecycleModes"], Value: func(d *storagev1.CSIDriver) any {
			var modes []string
			for _, m := range d.Spec.VolumeLifecycleModes {
				modes = append(modes, string(m))
			}
			return strings.Join(modes, ",")
		}},
		resource.Age[*storagev1.CSIDriver](),
	},
}

var driverDoc = storagev1.CSIDriverSpec{}.SwaggerDoc()

func driverFlag(name, property string, flag func(*storagev1.CSIDriverSpec) *bool) resource.Column[*storagev1.CSIDriver] {
	return resource.Column[*storagev1.CSIDriver]{Name: name, Type: "boolean", Description: driverDoc[property],
		Value: func(d *storagev1.CSIDriver) any { return isTrue(flag(&d.Spec)) }}
}

func tokensCell(requests []storagev1.TokenRequest) string {
	if requests == nil {
		return "<unset>"
	}
	var audiences []string
	for _, r := range requests {
		audiences = append(audiences, r.Audience)
	}
	return strings.Join(audiences, ",")
}

func validateCSIDriver(d *storagev1.CSIDriver) field.ErrorList {
	spec, path := &d.Spec, field.NewPath("spec")
	// A release that has it only in alpha sets no policy.
	errs := resource.OneOf(path.Child("fsGroupPolicy"), ptr.Deref(spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	errs = append(errs, validateTokenRequests(path.Child("tokenRequests"), spec.TokenRequests)...)
	for _, mode := range spec.VolumeLifecycleModes {
		errs = append(errs, resource.OneOf(path.Child("volumeLifecycleModes"), mode, storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if p := spec.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < minUpdatePeriod {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds"))
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), *spec.ServiceAccountTokenInSecrets,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// validateTokenRequests requires one request per audience, of which one may be
// the empty one.
func validateTokenRequests(path *field.Path, requests []storagev1.TokenRequest) field.ErrorList {
	var errs field.ErrorList
	var audiences []string
	for i, r := range requests {
		if slices.Contains(audiences, r.Audience) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("audience"), r.Audience))
			continue
		}
		audiences = append(audiences, r.Audience)
		at := path.Index(i).Child("expirationSeconds")
		switch life := r.ExpirationSeconds; {
		case life == nil:
		case *life < minTokenLife:
			errs = append(errs, field.Invalid(at, *life, "may not specify a duration less than 10 minutes"))
		case *life > maxTokenLife:
			errs = append(errs, field.Invalid(at, *life, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

// validateCSIName validates the name of a driver that an object refers to.
func validateCSIName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > maxCSIName {
		errs = append(errs, field.TooLong(path, "", maxCSIName))
	}
	return append(errs, resource.Invalid(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}
