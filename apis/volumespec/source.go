package volumespec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// podForms convert the sources of persistent volumes, by field, to the volume
// sources of pods, whose defaults and validation they share. A function returns
// nil if the source is not set.
var podForms = []struct {
	name string
	form func(s *corev1.PersistentVolumeSource) *corev1.VolumeSource
}{
	{"hostPath", podForm(func(s *corev1.PersistentVolumeSource) *corev1.HostPathVolumeSource { return s.HostPath },
		func(s *corev1.HostPathVolumeSource, v *corev1.VolumeSource) { v.HostPath = s })},
	{"gcePersistentDisk", podForm(func(s *corev1.PersistentVolumeSource) *corev1.GCEPersistentDiskVolumeSource {
		return s.GCEPersistentDisk
	},
		func(s *corev1.GCEPersistentDiskVolumeSource, v *corev1.VolumeSource) { v.GCEPersistentDisk = s })},
	{"awsElasticBlockStore", podForm(func(s *corev1.PersistentVolumeSource) *corev1.AWSElasticBlockStoreVolumeSource {
		return s.AWSElasticBlockStore
	}, func(s *corev1.AWSElasticBlockStoreVolumeSource, v *corev1.VolumeSource) { v.AWSElasticBlockStore = s })},
	{"glusterfs", podForm(func(s *corev1.PersistentVolumeSource) *corev1.GlusterfsPersistentVolumeSource { return s.Glusterfs },
		func(s *corev1.GlusterfsPersistentVolumeSource, v *corev1.VolumeSource) {
			v.Glusterfs = &corev1.GlusterfsVolumeSource{EndpointsName: s.EndpointsName, Path: s.Path}
		})},
	{"flocker", podForm(func(s *corev1.PersistentVolumeSource) *corev1.FlockerVolumeSource { return s.Flocker },
		func(s *corev1.FlockerVolumeSource, v *corev1.VolumeSource) { v.Flocker = s })},
	{"nfs", podForm(func(s *corev1.PersistentVolumeSource) *corev1.NFSVolumeSource { return s.NFS },
		func(s *corev1.NFSVolumeSource, v *corev1.VolumeSource) { v.NFS = s })},
	{"rbd", podForm(func(s *corev1.PersistentVolumeSource) *corev1.RBDPersistentVolumeSource { return s.RBD },
		func(s *corev1.RBDPersistentVolumeSource, v *corev1.VolumeSource) {
			v.RBD = &corev1.RBDVolumeSource{CephMonitors: s.CephMonitors, RBDImage: s.RBDImage}
		})},
	{"quobyte", podForm(func(s *corev1.PersistentVolumeSource) *corev1.QuobyteVolumeSource { return s.Quobyte },
		func(s *corev1.QuobyteVolumeSource, v *corev1.VolumeSource) { v.Quobyte = s })},
	{"cephfs", podForm(func(s *corev1.PersistentVolumeSource) *corev1.CephFSPersistentVolumeSource { return s.CephFS },
		func(s *corev1.CephFSPersistentVolumeSource, v *corev1.VolumeSource) {
			v.CephFS = &corev1.CephFSVolumeSource{Monitors: s.Monitors}
		})},
	{"iscsi", podForm(func(s *corev1.PersistentVolumeSource) *corev1.ISCSIPersistentVolumeSource { return s.ISCSI },
		func(s *corev1.ISCSIPersistentVolumeSource, v *corev1.VolumeSource) {
			v.ISCSI = &corev1.ISCSIVolumeSource{
				TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, InitiatorName: s.InitiatorName,
				DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, SecretRef: localRef(s.SecretRef),
			}
		})},
	{"cinder", podForm(func(s *corev1.PersistentVolumeSource) *corev1.CinderPersistentVolumeSource { return s.Cinder },
		func(s *corev1.CinderPersistentVolumeSource, v *corev1.VolumeSource) {
			v.Cinder = &corev1.CinderVolumeSource{VolumeID: s.VolumeID, SecretRef: localRef(s.SecretRef)}
		})},
	{"fc", podForm(func(s *corev1.PersistentVolumeSource) *corev1.FCVolumeSource { return s.FC },
		func(s *corev1.FCVolumeSource, v *corev1.VolumeSource) { v.FC = s })},
	{"flexVolume", podForm(func(s *corev1.PersistentVolumeSource) *corev1.FlexPersistentVolumeSource { return s.FlexVolume },
		func(s *corev1.FlexPersistentVolumeSource, v *corev1.VolumeSource) {
			v.FlexVolume = &corev1.FlexVolumeSource{Driver: s.Driver, Options: s.Options}
		})},
	{"azureFile", podForm(func(s *corev1.PersistentVolumeSource) *corev1.AzureFilePersistentVolumeSource { return s.AzureFile },
		func(s *corev1.AzureFilePersistentVolumeSource, v *corev1.VolumeSource) {
			v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: s.SecretName, ShareName: s.ShareName}
		})},
	{"vsphereVolume", podForm(func(s *corev1.PersistentVolumeSource) *corev1.VsphereVirtualDiskVolumeSource { return s.VsphereVolume },
		func(s *corev1.VsphereVirtualDiskVolumeSource, v *corev1.VolumeSource) { v.VsphereVolume = s })},
	{"photonPersistentDisk", podForm(func(s *corev1.PersistentVolumeSource) *corev1.PhotonPersistentDiskVolumeSource {
		return s.PhotonPersistentDisk
	}, func(s *corev1.PhotonPersistentDiskVolumeSource, v *corev1.VolumeSource) { v.PhotonPersistentDisk = s })},
	{"portworxVolume", podForm(func(s *corev1.PersistentVolumeSource) *corev1.PortworxVolumeSource { return s.PortworxVolume },
		func(s *corev1.PortworxVolumeSource, v *corev1.VolumeSource) { v.PortworxVolume = s })},
	{"azureDisk", podForm(func(s *corev1.PersistentVolumeSource) *corev1.AzureDiskVolumeSource { return s.AzureDisk },
		func(s *corev1.AzureDiskVolumeSource, v *corev1.VolumeSource) { v.AzureDisk = s })},
	{"scaleIO", podForm(func(s *corev1.PersistentVolumeSource) *corev1.ScaleIOPersistentVolumeSource { return s.ScaleIO },
		func(s *corev1.ScaleIOPersistentVolumeSource, v *corev1.VolumeSource) {
			v.ScaleIO = &corev1.ScaleIOVolumeSource{Gateway: s.Gateway, System: s.System, VolumeName: s.VolumeName}
		})},
	{"storageos", podForm(func(s *corev1.PersistentVolumeSource) *corev1.StorageOSPersistentVolumeSource { return s.StorageOS },
		func(s *corev1.StorageOSPersistentVolumeSource, v *corev1.VolumeSource) {
			v.StorageOS = &corev1.StorageOSVolumeSource{VolumeName: s.VolumeName, VolumeNamespace: s.VolumeNamespace}
		})},
}

// podForm makes one conversion from the functions that read a persistent volume's
// source and write a pod's.
func podForm[T any](of func(*corev1.PersistentVolumeSource) *T, to func(*T, *corev1.VolumeSource)) func(*corev1.PersistentVolumeSource) *corev1.VolumeSource {
	return func(s *corev1.PersistentVolumeSource) *corev1.VolumeSource {
		source := of(s)
		if source == nil {
			return nil
		}
		v := &corev1.VolumeSource{}
		to(source, v)
		return v
	}
}

func localRef(ref *corev1.SecretReference) *corev1.LocalObjectReference {
	if ref == nil {
		return nil
	}
	return &corev1.LocalObjectReference{Name: ref.Name}
}

// DefaultSource sets the defaults of a source. Sources that pods have, too, have the
// defaults of pods.
func DefaultSource(s *corev1.PersistentVolumeSource) {
	for _, source := range podForms {
		if form := source.form(s); form != nil {
			podspec.DefaultVolume(form)
		}
	}
	if s.ISCSI != nil {
		resource.FillEmpty(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		resource.FillEmpty(&s.RBD.RBDPool, "rbd")
		resource.FillEmpty(&s.RBD.RadosUser, "admin")
		resource.FillEmpty(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.ScaleIO != nil {
		resource.FillEmpty(&s.ScaleIO.StorageMode, "ThinProvisioned")
		resource.FillEmpty(&s.ScaleIO.FSType, "xfs")
	}
}

// validateSource requires exactly one source.
func (v *volume) validateSource() field.ErrorList {
	var errs field.ErrorList
	chosen := false
	validate := func(name string, set bool, rule func(path *field.Path) field.ErrorList) {
		switch path := v.path.Child(name); {
		case !set:
		case chosen:
			errs = append(errs, field.Forbidden(path, "may not specify more than 1 volume type"))
		default:
			chosen = true
			errs = append(errs, rule(path)...)
		}
	}
	s := &v.PersistentVolumeSource
	for _, source := range podForms {
		form := source.form(s)
		validate(source.name, form != nil, func(path *field.Path) field.ErrorList {
			return append(podspec.ValidateVolumeSource(source.name, form, path), v.persistentOnly(form, path)...)
		})
	}
	validate("local", s.Local != nil, func(path *field.Path) field.ErrorList { return v.validateLocal(path) })
	validate("csi", s.CSI != nil, func(path *field.Path) field.ErrorList { return validatePersistentCSI(s.CSI, path) })
	if !chosen {
		errs = append(errs, field.Required(v.path, "must specify a volume type"))
	}
	return errs
}

// persistentOnly validates the fields of a source that its form in pods does not
// have: the namespaces of references.
func (v *volume) persistentOnly(form *corev1.VolumeSource, path *field.Path) field.ErrorList {
	s := &v.PersistentVolumeSource
	switch {
	case form.Glusterfs != nil && s.Glusterfs.EndpointsNamespace != nil:
		namespace := *s.Glusterfs.EndpointsNamespace
		if namespace == "" {
			return field.ErrorList{field.Invalid(path.Child("endpointsNamespace"), namespace, "if the endpointnamespace is set, it must be a valid namespace name")}
		}
		return resource.Invalid(path.Child("endpointsNamespace"), namespace, apivalidation.ValidateNamespaceName(namespace, false))
	case form.Cinder != nil && s.Cinder.SecretRef != nil:
		return resource.Required(path.Child("secretRef", "namespace"), s.Cinder.SecretRef.Namespace)
	case form.AzureFile != nil && s.AzureFile.SecretNamespace != nil:
		return resource.Required(path.Child("secretNamespace"), *s.AzureFile.SecretNamespace)
	case form.StorageOS != nil && s.StorageOS.SecretRef != nil:
		return append(resource.Required(path.Child("secretRef", "name"), s.StorageOS.SecretRef.Name),
			resource.Required(path.Child("secretRef", "namespace"), s.StorageOS.SecretRef.Namespace)...)
	case form.ISCSI != nil:
		var errs field.ErrorList
		if s.ISCSI.SecretRef != nil {
			errs = resource.Required(path.Child("secretRef", "name"), s.ISCSI.SecretRef.Name)
		}
		if s.ISCSI.InitiatorName != nil && len(v.name+":"+s.ISCSI.TargetPortal) > 64 {
			errs = append(errs, field.Invalid(path.Child("targetportal"), s.ISCSI.TargetPortal,
				"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
		}
		return errs
	}
	return nil
}

func (v *volume) validateLocal(path *field.Path) field.ErrorList {
	errs := resource.Required(path.Child("path"), v.Local.Path)
	if len(errs) == 0 {
		errs = podspec.ValidateNoBacksteps(v.Local.Path, path.Child("path"))
	}
	if v.NodeAffinity == nil {
		errs = append(errs, field.Required(v.path.Child("nodeAffinity"), "Local volume requires node affinity"))
	}
	return errs
}

func validatePersistentCSI(s *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := append(podspec.ValidateCSIDriver(s.Driver, path.Child("driver")), resource.Required(path.Child("volumeHandle"), s.VolumeHandle)...)
	for _, ref := range []struct {
		name   string
		secret *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if ref.secret != nil {
			errs = append(errs, validateSecretRef(ref.secret, path.Child(ref.name))...)
		}
	}
	return errs
}

func validateSecretRef(ref *corev1.SecretReference, path *field.Path) field.ErrorList {
	errs := resource.Required(path.Child("name"), ref.Name)
	if ref.Name != "" {
		errs = resource.Invalid(path.Child("name"), ref.Name, validation.IsDNS1123Subdomain(ref.Name))
	}
	if ref.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), ""))
	}
	return append(errs, resource.Invalid(path.Child("namespace"), ref.Namespace, validation.IsDNS1123Label(ref.Namespace))...)
}
