package podspec

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func volumesAreValid(s *podSpec) field.ErrorList {
	// Ephemeral volumes become claims that are named after the pod; a template has
	// no name of a pod.
	created := sets.New[string]()
	if s.meta != nil && s.meta.Name != "" {
		for i := range s.Volumes {
			if s.Volumes[i].Ephemeral != nil {
				created.Insert(s.meta.Name + "-" + s.Volumes[i].Name)
			}
		}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range s.Volumes {
		v, path := &s.Volumes[i], s.path.Child("volumes").Index(i)
		invalid := s.validateVolume(v, path)
		invalid = append(invalid, validateLabelName(path.Child("name"), v.Name)...)
		invalid = append(invalid, resource.Unique(path.Child("name"), v.Name, names)...)
		errs = append(errs, invalid...)
		if len(invalid) == 0 {
			s.volumes[v.Name] = &v.VolumeSource
		}
		if claim := v.PersistentVolumeClaim; claim != nil && created.Has(claim.ClaimName) {
			errs = append(errs, field.Invalid(path.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

func (s *podSpec) validateVolume(v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	chosen := ""
	for _, source := range volumeSources {
		switch {
		case !source.set(&v.VolumeSource):
		case chosen != "":
			errs = append(errs, field.Forbidden(path.Child(source.name), "may not specify more than 1 volume type"))
		default:
			chosen = source.name
			errs = append(errs, source.validate(&v.VolumeSource, path.Child(source.name))...)
		}
	}
	if chosen == "" {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	if v.ISCSI != nil && v.ISCSI.InitiatorName != nil && len(v.Name+":"+v.ISCSI.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	if v.Ephemeral != nil && s.meta != nil && s.meta.Name != "" && v.Name != "" {
		claim := s.meta.Name + "-" + v.Name
		for _, msg := range validation.IsDNS1123Subdomain(claim) {
			errs = append(errs, field.Invalid(path.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg)))
		}
	}
	if chosen == "image" && v.Image.Reference == "" && s.meta != nil {
		errs = append(errs, field.Required(path.Child("image", "reference"), ""))
	}
	return errs
}

// volumeSource is a kind of volume: the name of its field and its validation.
type volumeSource struct {
	name     string
	set      func(v *corev1.VolumeSource) bool
	validate func(v *corev1.VolumeSource, path *field.Path) field.ErrorList
}

func source[T any](name string, of func(v *corev1.VolumeSource) *T, validate func(source *T, path *field.Path) field.ErrorList) volumeSource {
	return volumeSource{
		name:     name,
		set:      func(v *corev1.VolumeSource) bool { return of(v) != nil },
		validate: func(v *corev1.VolumeSource, path *field.Path) field.ErrorList { return validate(of(v), path) },
	}
}

// ValidateVolumeSource checks the source in the named field of v, which is set.
// A persistent volume's source is checked in the form that pods give it.
func ValidateVolumeSource(name string, v *corev1.VolumeSource, path *field.Path) field.ErrorList {
	for _, source := range volumeSources {
		if source.name == name {
			return source.validate(v, path)
		}
	}
	return nil
}

// volumeSources are all kinds of volumes. If several are set, the first counts.
var volumeSources = []volumeSource{
	source("emptyDir", func(v *corev1.VolumeSource) *corev1.EmptyDirVolumeSource { return v.EmptyDir }, validateEmptyDir),
	source("hostPath", func(v *corev1.VolumeSource) *corev1.HostPathVolumeSource { return v.HostPath }, validateHostPath),
	source("gitRepo", func(v *corev1.VolumeSource) *corev1.GitRepoVolumeSource { return v.GitRepo }, validateGitRepo),
	source("gcePersistentDisk", func(v *corev1.VolumeSource) *corev1.GCEPersistentDiskVolumeSource { return v.GCEPersistentDisk },
		func(s *corev1.GCEPersistentDiskVolumeSource, p *field.Path) field.ErrorList {
			return append(resource.Required(p.Child("pdName"), s.PDName), validatePartition(s.Partition, p)...)
		}),
	source("awsElasticBlockStore", func(v *corev1.VolumeSource) *corev1.AWSElasticBlockStoreVolumeSource { return v.AWSElasticBlockStore },
		func(s *corev1.AWSElasticBlockStoreVolumeSource, p *field.Path) field.ErrorList {
			return append(resource.Required(p.Child("volumeID"), s.VolumeID), validatePartition(s.Partition, p)...)
		}),
	source("secret", func(v *corev1.VolumeSource) *corev1.SecretVolumeSource { return v.Secret },
		func(s *corev1.SecretVolumeSource, p *field.Path) field.ErrorList {
			errs := append(resource.Required(p.Child("secretName"), s.SecretName), validateMode(s.DefaultMode, p.Child("defaultMode"))...)
			return append(errs, validateItems(s.Items, p.Child("items"))...)
		}),
	source("nfs", func(v *corev1.VolumeSource) *corev1.NFSVolumeSource { return v.NFS }, validateNFS),
	source("iscsi", func(v *corev1.VolumeSource) *corev1.ISCSIVolumeSource { return v.ISCSI }, validateISCSI),
	source("glusterfs", func(v *corev1.VolumeSource) *corev1.GlusterfsVolumeSource { return v.Glusterfs },
		func(s *corev1.GlusterfsVolumeSource, p *field.Path) field.ErrorList {
			return append(resource.Required(p.Child("endpoints"), s.EndpointsName), resource.Required(p.Child("path"), s.Path)...)
		}),
	source("flocker", func(v *corev1.VolumeSource) *corev1.FlockerVolumeSource { return v.Flocker }, validateFlocker),
	source("persistentVolumeClaim", func(v *corev1.VolumeSource) *corev1.PersistentVolumeClaimVolumeSource { return v.PersistentVolumeClaim },
		func(s *corev1.PersistentVolumeClaimVolumeSource, p *field.Path) field.ErrorList {
			return resource.Required(p.Child("claimName"), s.ClaimName)
		}),
	source("rbd", func(v *corev1.VolumeSource) *corev1.RBDVolumeSource { return v.RBD },
		func(s *corev1.RBDVolumeSource, p *field.Path) field.ErrorList {
			return append(mustHaveMonitors(s.CephMonitors, p), resource.Required(p.Child("image"), s.RBDImage)...)
		}),
	source("cinder", func(v *corev1.VolumeSource) *corev1.CinderVolumeSource { return v.Cinder },
		func(s *corev1.CinderVolumeSource, p *field.Path) field.ErrorList {
			return append(resource.Required(p.Child("volumeID"), s.VolumeID), secretRefHasName(s.SecretRef, p)...)
		}),
	source("cephfs", func(v *corev1.VolumeSource) *corev1.CephFSVolumeSource { return v.CephFS },
		func(s *corev1.CephFSVolumeSource, p *field.Path) field.ErrorList {
			return mustHaveMonitors(s.Monitors, p)
		}),
	source("quobyte", func(v *corev1.VolumeSource) *corev1.QuobyteVolumeSource { return v.Quobyte }, validateQuobyte),
	source("downwardAPI", func(v *corev1.VolumeSource) *corev1.DownwardAPIVolumeSource { return v.DownwardAPI }, validateDownwardAPI),
	source("fc", func(v *corev1.VolumeSource) *corev1.FCVolumeSource { return v.FC }, validateFC),
	source("flexVolume", func(v *corev1.VolumeSource) *corev1.FlexVolumeSource { return v.FlexVolume }, validateFlexVolume),
	source("configMap", func(v *corev1.VolumeSource) *corev1.ConfigMapVolumeSource { return v.ConfigMap },
		func(s *corev1.ConfigMapVolumeSource, p *field.Path) field.ErrorList {
			errs := append(resource.Required(p.Child("name"), s.Name), validateMode(s.DefaultMode, p.Child("defaultMode"))...)
			return append(errs, validateItems(s.Items, p.Child("items"))...)
		}),
	source("azureFile", func(v *corev1.VolumeSource) *corev1.AzureFileVolumeSource { return v.AzureFile },
		func(s *corev1.AzureFileVolumeSource, p *field.Path) field.ErrorList {
			return append(resource.Required(p.Child("secretName"), s.SecretName), resource.Required(p.Child("shareName"), s.ShareName)...)
		}),
	source("vsphereVolume", func(v *corev1.VolumeSource) *corev1.VsphereVirtualDiskVolumeSource { return v.VsphereVolume },
		func(s *corev1.VsphereVirtualDiskVolumeSource, p *field.Path) field.ErrorList {
			return resource.Required(p.Child("volumePath"), s.VolumePath)
		}),
	source("photonPersistentDisk", func(v *corev1.VolumeSource) *corev1.PhotonPersistentDiskVolumeSource { return v.PhotonPersistentDisk },
		func(s *corev1.PhotonPersistentDiskVolumeSource, p *field.Path) field.ErrorList {
			return resource.Required(p.Child("pdID"), s.PdID)
		}),
	source("portworxVolume", func(v *corev1.VolumeSource) *corev1.PortworxVolumeSource { return v.PortworxVolume },
		func(s *corev1.PortworxVolumeSource, p *field.Path) field.ErrorList {
			return resource.Required(p.Child("volumeID"), s.VolumeID)
		}),
	source("azureDisk", func(v *corev1.VolumeSource) *corev1.AzureDiskVolumeSource { return v.AzureDisk }, validateAzureDisk),
	source("storageos", func(v *corev1.VolumeSource) *corev1.StorageOSVolumeSource { return v.StorageOS }, validateStorageOS),
	source("projected", func(v *corev1.VolumeSource) *corev1.ProjectedVolumeSource { return v.Projected }, validateProjected),
	source("scaleIO", func(v *corev1.VolumeSource) *corev1.ScaleIOVolumeSource { return v.ScaleIO },
		func(s *corev1.ScaleIOVolumeSource, p *field.Path) field.ErrorList {
			errs := append(resource.Required(p.Child("gateway"), s.Gateway), resource.Required(p.Child("system"), s.System)...)
			return append(errs, resource.Required(p.Child("volumeName"), s.VolumeName)...)
		}),
	source("csi", func(v *corev1.VolumeSource) *corev1.CSIVolumeSource { return v.CSI }, validateCSI),
	source("ephemeral", func(v *corev1.VolumeSource) *corev1.EphemeralVolumeSource { return v.Ephemeral }, validateEphemeral),
	source("image", func(v *corev1.VolumeSource) *corev1.ImageVolumeSource { return v.Image },
		func(s *corev1.ImageVolumeSource, p *field.Path) field.ErrorList {
			return validatePullPolicy(s.PullPolicy, p.Child("pullPolicy"))
		}),
}

func validateEmptyDir(s *corev1.EmptyDirVolumeSource, p *field.Path) field.ErrorList {
	if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		return field.ErrorList{field.Forbidden(p.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
	}
	return nil
}

func validateHostPath(s *corev1.HostPathVolumeSource, p *field.Path) field.ErrorList {
	if s.Path == "" {
		return field.ErrorList{field.Required(p.Child("path"), "")}
	}
	return append(ValidateNoBacksteps(s.Path, p.Child("path")), resource.OptionalOneOf(p.Child("type"), s.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
}

func validateGitRepo(s *corev1.GitRepoVolumeSource, p *field.Path) field.ErrorList {
	return append(resource.Required(p.Child("repository"), s.Repository), descends(s.Directory, p.Child("directory"))...)
}

func validateNFS(s *corev1.NFSVolumeSource, p *field.Path) field.ErrorList {
	errs := append(resource.Required(p.Child("server"), s.Server), resource.Required(p.Child("path"), s.Path)...)
	if !path.IsAbs(s.Path) {
		errs = append(errs, field.Invalid(p.Child("path"), s.Path, "must be an absolute path"))
	}
	return errs
}

// The three forms of an iSCSI name (RFC 3720, section 3.2.6.3).
var iscsiNames = map[string]*regexp.Regexp{
	"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
	"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
	"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
}

func validateISCSIName(name string, p *field.Path) field.ErrorList {
	form, ok := iscsiNames[name[:min(3, len(name))]]
	if !ok {
		return field.ErrorList{field.Invalid(p, name, "must be valid format starting with iqn, eui, or naa")}
	}
	if !form.MatchString(name) {
		return field.ErrorList{field.Invalid(p, name, "must be valid format")}
	}
	return nil
}

func validateISCSI(s *corev1.ISCSIVolumeSource, p *field.Path) field.ErrorList {
	errs := resource.Required(p.Child("targetPortal"), s.TargetPortal)
	if s.IQN == "" {
		errs = append(errs, field.Required(p.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(s.IQN, p.Child("iqn"))...)
	}
	errs = append(errs, validateLun(s.Lun, p)...)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		errs = append(errs, field.Required(p.Child("secretRef"), ""))
	}
	if s.InitiatorName != nil {
		errs = append(errs, validateISCSIName(*s.InitiatorName, p.Child("initiatorName"))...)
	}
	return errs
}

func validateLun(lun int32, p *field.Path) field.ErrorList {
	if lun < 0 || lun > 255 {
		return field.ErrorList{field.Invalid(p.Child("lun"), lun, validation.InclusiveRangeError(0, 255))}
	}
	return nil
}

// validatePartition allows zero, which means the whole disk.
func validatePartition(partition int32, p *field.Path) field.ErrorList {
	if partition < 0 || partition > 255 {
		return field.ErrorList{field.Invalid(p.Child("partition"), partition, validation.InclusiveRangeError(1, 255))}
	}
	return nil
}

func validateFC(s *corev1.FCVolumeSource, p *field.Path) field.ErrorList {
	names := p.Child("targetWWNs")
	if len(s.TargetWWNs) == 0 {
		if len(s.WWIDs) == 0 {
			return field.ErrorList{field.Required(names, "must specify either targetWWNs or wwids, but not both")}
		}
		return nil
	}
	var errs field.ErrorList
	if len(s.WWIDs) > 0 {
		errs = append(errs, field.Invalid(names, s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	if s.Lun == nil {
		return append(errs, field.Required(p.Child("lun"), "lun is required if targetWWNs is specified"))
	}
	return append(errs, validateLun(*s.Lun, p)...)
}

func validateFlocker(s *corev1.FlockerVolumeSource, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs = append(errs, field.Required(p, "one of datasetName and datasetUUID is required"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs = append(errs, field.Invalid(p, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(s.DatasetName, "/") {
		errs = append(errs, field.Invalid(p.Child("datasetName"), s.DatasetName, "must not contain '/'"))
	}
	return errs
}

func mustHaveMonitors(monitors []string, p *field.Path) field.ErrorList {
	if len(monitors) == 0 {
		return field.ErrorList{field.Required(p.Child("monitors"), "")}
	}
	return nil
}

func secretRefHasName(ref *corev1.LocalObjectReference, p *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return resource.Required(p.Child("secretRef", "name"), ref.Name)
}

func validateQuobyte(s *corev1.QuobyteVolumeSource, p *field.Path) field.ErrorList {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	var errs field.ErrorList
	if s.Registry == "" {
		errs = append(errs, field.Required(p.Child("registry"), pairs))
	} else if len(s.Tenant) > 64 {
		errs = append(errs, field.Required(p.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	} else {
		for _, pair := range strings.Split(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(p.Child("registry"), s.Registry, pairs))
			}
		}
	}
	return append(errs, resource.Required(p.Child("volume"), s.Volume)...)
}

func validateFlexVolume(s *corev1.FlexVolumeSource, p *field.Path) field.ErrorList {
	errs := resource.Required(p.Child("driver"), s.Driver)
	for key := range s.Options {
		namespace, _, _ := strings.Cut(key, "/")
		if dotted := "." + strings.ToLower(namespace); strings.HasSuffix(dotted, ".kubernetes.io") || strings.HasSuffix(dotted, ".k8s.io") {
			errs = append(errs, field.Invalid(p.Child("options").Key(key), key, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateAzureDisk(s *corev1.AzureDiskVolumeSource, p *field.Path) field.ErrorList {
	errs := append(resource.Required(p.Child("diskName"), s.DiskName), resource.Required(p.Child("diskURI"), s.DataDiskURI)...)
	errs = append(errs, resource.OptionalOneOf(p.Child("cachingMode"), s.CachingMode,
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, resource.OptionalOneOf(p.Child("kind"), s.Kind,
		corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk)...)
	if s.Kind == nil {
		return errs
	}
	prefix, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == corev1.AzureManagedDisk {
		prefix, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, prefix) {
		errs = append(errs, field.NotSupported(p.Child("diskURI"), s.DataDiskURI, []string{form}))
	}
	return errs
}

func validateStorageOS(s *corev1.StorageOSVolumeSource, p *field.Path) field.ErrorList {
	errs := validateLabelName(p.Child("volumeName"), s.VolumeName)
	if s.VolumeNamespace != "" {
		errs = append(errs, resource.Invalid(p.Child("volumeNamespace"), s.VolumeNamespace, validation.IsDNS1123Label(s.VolumeNamespace))...)
	}
	return append(errs, secretRefHasName(s.SecretRef, p)...)
}

func validateCSI(s *corev1.CSIVolumeSource, p *field.Path) field.ErrorList {
	errs := ValidateCSIDriver(s.Driver, p.Child("driver"))
	if ref := s.NodePublishSecretRef; ref != nil {
		errs = append(errs, validateEnvFromName(ref.Name, p.Child("nodePublishSecretRef", "name"))...)
	}
	return errs
}

// maxCSIDriverName is the limit of the CSI specification (GetPluginInfo).
const maxCSIDriverName = 63

// ValidateCSIDriver requires the name of a CSI driver: a DNS subdomain of at most
// [maxCSIDriverName] characters, in upper or lower case.
func ValidateCSIDriver(driver string, p *field.Path) field.ErrorList {
	if driver == "" {
		return field.ErrorList{field.Required(p, "")}
	}
	var errs field.ErrorList
	if len(driver) > maxCSIDriverName {
		errs = append(errs, field.TooLong(p, "", maxCSIDriverName))
	}
	return append(errs, resource.Invalid(p, driver, validation.IsDNS1123Subdomain(strings.ToLower(driver)))...)
}
