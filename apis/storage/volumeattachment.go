package storage

import (
	"math"

	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/volumespec"
)

// The greatest sizes of what a driver reports, in bytes.
const (
	maxAttachmentMetadata = 256 << 10
	maxErrorMessage       = 1024
)

var volumeAttachments = resource.Type[*storagev1.VolumeAttachment]{
	Name: "volumeattachments", ReturnDeleted: true,
	Versions: []resource.Version{resource.Alike[storagev1.VolumeAttachment, storagev1beta1.VolumeAttachment](), resource.Alike[storagev1.VolumeAttachment, storagev1alpha1.VolumeAttachment]()},
	Default:  defaultAttachment,
	Validate: validateAttachment,
	ValidateUpdate: func(a, old *storagev1.VolumeAttachment) field.ErrorList {
		return apivalidation.ValidateImmutableField(a.Spec, old.Spec, field.NewPath("spec"))
	},
	Status:         true,
	StatusOnly:     true,
	ValidateStatus: func(a, _ *storagev1.VolumeAttachment) field.ErrorList { return validateAttachmentStatus(&a.Status) },
	RequireVersion: true,
	Columns: []resource.Column[*storagev1.VolumeAttachment]{
		resource.Name[*storagev1.VolumeAttachment](),
		{Name: "Attacher", Format: "name", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["attacher"],
			Value: func(a *storagev1.VolumeAttachment) any { return a.Spec.Attacher }},
		{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"],
			Value: func(a *storagev1.VolumeAttachment) any {
				if a.Spec.Source.PersistentVolumeName == nil {
					return ""
				}
				return *a.Spec.Source.PersistentVolumeName
			}},
		{Name: "Node", Description: storagev1.VolumeAttachmentSpec{}.SwaggerDoc()["nodeName"],
			Value: func(a *storagev1.VolumeAttachment) any { return a.Spec.NodeName }},
		{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"],
			Value: func(a *storagev1.VolumeAttachment) any { return a.Status.Attached }},
		resource.Age[*storagev1.VolumeAttachment](),
	},
}

// defaultAttachment sets the defaults of an inline volume's source. The other
// defaults of persistent volumes are not for inline ones.
func defaultAttachment(a *storagev1.VolumeAttachment) {
	if spec := a.Spec.Source.InlineVolumeSpec; spec != nil {
		volumespec.DefaultSource(&spec.PersistentVolumeSource)
	}
}

func validateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateCSIName(path.Child("attacher"), a.Spec.Attacher)
	errs = append(errs, validateAttachmentSource(path.Child("source"), &a.Spec.Source)...)
	return append(errs, resource.Invalid(path.Child("nodeName"), a.Spec.NodeName, apivalidation.NameIsDNSSubdomain(a.Spec.NodeName, false))...)
}

func validateAttachmentSource(path *field.Path, s *storagev1.VolumeAttachmentSource) field.ErrorList {
	const exactlyOne = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name := path.Child("persistentVolumeName")
	var errs field.ErrorList
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, exactlyOne)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, exactlyOne)}
	case s.InlineVolumeSpec != nil:
		return volumespec.ValidateInline(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		errs = append(errs, field.Required(name, "must specify non empty persistentVolumeName"))
	}
	return append(errs, resource.Invalid(name, *s.PersistentVolumeName, apivalidation.NameIsDNSSubdomain(*s.PersistentVolumeName, false))...)
}

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if sizeOf(s.AttachmentMetadata) > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	errs = append(errs, validateVolumeError(path.Child("attachError"), s.AttachError)...)
	return append(errs, validateVolumeError(path.Child("detachError"), s.DetachError)...)
}

func validateVolumeError(path *field.Path, e *storagev1.VolumeError) field.ErrorList {
	var errs field.ErrorList
	if e == nil {
		return nil
	}
	if len(e.Message) > maxErrorMessage {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxErrorMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(path.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
