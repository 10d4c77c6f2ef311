package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func (s *podSpec) validateMounts(c *corev1.Container, path *field.Path) field.ErrorList {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	devices, devicePaths := sets.New[string](), sets.New[string]()
	for _, device := range c.VolumeDevices {
		devices.Insert(device.Name)
		devicePaths.Insert(device.DevicePath)
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i := range c.VolumeMounts {
		mount, path := &c.VolumeMounts[i], path.Index(i)
		errs = append(errs, resource.Required(path.Child("name"), mount.Name)...)
		if s.volumes[mount.Name] == nil {
			errs = append(errs, field.NotFound(path.Child("name"), mount.Name))
		}
		errs = append(errs, resource.Required(path.Child("mountPath"), mount.MountPath)...)
		if seen.Has(mount.MountPath) {
			errs = append(errs, field.Invalid(path.Child("mountPath"), mount.MountPath, "must be unique"))
		}
		seen.Insert(mount.MountPath)
		if devices.Has(mount.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), mount.Name, "must not already exist in volumeDevices"))
		}
		if devicePaths.Has(mount.MountPath) {
			errs = append(errs, field.Invalid(path.Child("mountPath"), mount.MountPath, "must not already exist as a path in volumeDevices"))
		}
		errs = append(errs, descends(mount.SubPath, path.Child("subPath"))...)
		if mount.SubPath != "" && mount.SubPathExpr != "" {
			errs = append(errs, field.Invalid(path.Child("subPathExpr"), mount.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, descends(mount.SubPathExpr, path.Child("subPathExpr"))...)
		errs = append(errs, validatePropagation(mount, isPrivileged(c), path)...)
	}
	return errs
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

func validatePropagation(mount *corev1.VolumeMount, privileged bool, path *field.Path) field.ErrorList {
	propagation := mount.MountPropagation
	errs := resource.OptionalOneOf(path.Child("mountPropagation"), propagation,
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	if propagation != nil && *propagation == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(path.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers"))
	}
	recursive := mount.RecursiveReadOnly
	if recursive == nil || *recursive == corev1.RecursiveReadOnlyDisabled {
		return errs
	}
	path = path.Child("recursiveReadOnly")
	if unknown := resource.OptionalOneOf(path, recursive, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible); unknown != nil {
		return append(errs, unknown...)
	}
	if !mount.ReadOnly {
		errs = append(errs, field.Forbidden(path, "may only be specified when readOnly is true"))
	}
	if propagation != nil && *propagation != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(path, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

func (s *podSpec) validateDevices(c *corev1.Container, path *field.Path) field.ErrorList {
	if len(c.VolumeDevices) == 0 {
		return nil
	}
	mounts, mountPaths := sets.New[string](), sets.New[string]()
	for _, mount := range c.VolumeMounts {
		mounts.Insert(mount.Name)
		mountPaths.Insert(mount.MountPath)
	}
	var errs field.ErrorList
	names, paths := sets.New[string](), sets.New[string]()
	for i, device := range c.VolumeDevices {
		name, at := path.Index(i).Child("name"), path.Index(i).Child("devicePath")
		errs = append(errs, resource.Required(name, device.Name)...)
		if names.Has(device.Name) {
			errs = append(errs, field.Invalid(name, device.Name, "must be unique"))
		}
		if volume := s.volumes[device.Name]; volume == nil {
			errs = append(errs, field.NotFound(name, device.Name))
		} else if volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil {
			errs = append(errs, field.Invalid(name, device.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		errs = append(errs, resource.Required(at, device.DevicePath)...)
		if paths.Has(device.DevicePath) {
			errs = append(errs, field.Invalid(at, device.DevicePath, "must be unique"))
		}
		if ValidateNoBacksteps(device.DevicePath, at) != nil {
			errs = append(errs, field.Invalid(at, device.DevicePath, "can not contain backsteps ('..')"))
		}
		if mounts.Has(device.Name) {
			errs = append(errs, field.Invalid(name, device.Name, "must not already exist in volumeMounts"))
		}
		if mountPaths.Has(device.DevicePath) {
			errs = append(errs, field.Invalid(at, device.DevicePath, "must not already exist as a path in volumeMounts"))
		}
		names.Insert(device.Name)
		paths.Insert(device.DevicePath)
	}
	return errs
}
