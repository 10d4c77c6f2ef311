package podspec

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// validateItems validates the keys of a ConfigMap or Secret that become files.
func validateItems(items []corev1.KeyToPath, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		p := p.Index(i)
		errs = append(errs, resource.Required(p.Child("key"), item.Key)...)
		errs = append(errs, resource.Required(p.Child("path"), item.Path)...)
		errs = append(errs, staysInVolume(item.Path, p.Child("path"))...)
		errs = append(errs, validateMode(item.Mode, p.Child("mode"))...)
	}
	return errs
}

func validateMode(mode *int32, p *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(p, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func validateDownwardAPI(s *corev1.DownwardAPIVolumeSource, p *field.Path) field.ErrorList {
	return append(validateMode(s.DefaultMode, p.Child("defaultMode")), validateDownwardFiles(s.Items, p)...)
}

func validateDownwardFiles(files []corev1.DownwardAPIVolumeFile, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range files {
		file := &files[i]
		errs = append(errs, resource.Required(p.Child("path"), file.Path)...)
		errs = append(errs, staysInVolume(file.Path, p.Child("path"))...)
		switch ref := file.ResourceFieldRef; {
		case file.FieldRef != nil:
			errs = append(errs, validateFieldRef(file.FieldRef, fileFieldPaths, p.Child("fieldRef"))...)
			if ref != nil {
				errs = append(errs, field.Invalid(p, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
			}
		case ref == nil:
			errs = append(errs, field.Required(p, "one of fieldRef and resourceFieldRef is required"))
		case ref.ContainerName == "":
			errs = append(errs, field.Required(p.Child("resourceFieldRef", "containerName"), ""))
		default:
			errs = append(errs, validateResourceFieldRef(ref, p.Child("resourceFieldRef"))...)
		}
		errs = append(errs, validateMode(file.Mode, p.Child("mode"))...)
	}
	return errs
}

func validateProjected(s *corev1.ProjectedVolumeSource, p *field.Path) field.ErrorList {
	errs := validateMode(s.DefaultMode, p.Child("defaultMode"))
	files := projectedFiles{path: p, seen: sets.New[string]()}
	for i := range s.Sources {
		errs = append(errs, files.validateProjection(&s.Sources[i], p.Child("sources").Index(i))...)
	}
	return errs
}

// projectedFiles are the files of a projected volume, of which no two may have
// the same path.
type projectedFiles struct {
	path *field.Path
	seen sets.Set[string]
}

func (f projectedFiles) add(file string, value any) field.ErrorList {
	if file == "" {
		return nil
	}
	if f.seen.Has(file) {
		return field.ErrorList{field.Invalid(f.path, value, "conflicting duplicate paths")}
	}
	f.seen.Insert(file)
	return nil
}

func (f projectedFiles) validateProjection(source *corev1.VolumeProjection, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	items := func(name, object string, items []corev1.KeyToPath) {
		errs = append(errs, resource.Required(p.Child(name, "name"), object)...)
		errs = append(errs, validateItems(items, p.Child(name, "items"))...)
		for _, item := range items {
			errs = append(errs, f.add(item.Path, object)...)
		}
	}
	if s := source.Secret; s != nil {
		sources++
		items("secret", s.Name, s.Items)
	}
	if s := source.ConfigMap; s != nil {
		sources++
		items("configMap", s.Name, s.Items)
	}
	if s := source.DownwardAPI; s != nil {
		sources++
		errs = append(errs, validateDownwardFiles(s.Items, p.Child("downwardAPI"))...)
		for _, file := range s.Items {
			errs = append(errs, f.add(file.Path, file.Path)...)
		}
	}
	if s := source.ServiceAccountToken; s != nil {
		sources++
		errs = append(errs, validateTokenProjection(s, p.Child("serviceAccountToken"))...)
	}
	if s := source.ClusterTrustBundle; s != nil {
		sources++
		errs = append(errs, f.validateTrustBundle(s, p.Child("clusterTrustBundle"))...)
	}
	if s := source.PodCertificate; s != nil {
		sources++
		errs = append(errs, f.validatePodCertificate(s, p.Child("podCertificate"))...)
	}
	if sources > 1 {
		errs = append(errs, field.Forbidden(p, "may not specify more than 1 volume type per source"))
	}
	return errs
}

func validateTokenProjection(s *corev1.ServiceAccountTokenProjection, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if seconds := s.ExpirationSeconds; seconds != nil {
		switch {
		case *seconds < 10*60:
			errs = append(errs, field.Invalid(p.Child("expirationSeconds"), *seconds, "may not specify a duration less than 10 minutes"))
		case *seconds > 1<<32:
			errs = append(errs, field.Invalid(p.Child("expirationSeconds"), *seconds, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	if s.Path == "" {
		return append(errs, field.Required(p.Child("path"), ""))
	}
	return append(errs, staysInVolume(s.Path, p.Child("path"))...)
}

func (f projectedFiles) validateTrustBundle(s *corev1.ClusterTrustBundleProjection, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Name != nil && s.SignerName != nil:
		errs = append(errs, field.Invalid(p, s, "only one of name and signerName may be used"))
	case s.Name != nil:
		if *s.Name == "" {
			errs = append(errs, field.Required(p.Child("name"), "must be a valid object name"))
		}
		errs = append(errs, validateTrustBundleName(*s.Name, p.Child("name"))...)
		if s.LabelSelector != nil {
			errs = append(errs, field.Invalid(p.Child("labelSelector"), s.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case s.SignerName != nil:
		errs = append(errs, validateSignerName(*s.SignerName, p.Child("signerName"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(s.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, p.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(p, "either name or signerName must be specified"))
	}
	errs = append(errs, resource.Required(p.Child("path"), s.Path)...)
	errs = append(errs, staysInVolume(s.Path, p.Child("path"))...)
	return append(errs, f.add(s.Path, s.Path)...)
}

// validateTrustBundleName requires that the name of a bundle with a signer begins
// with the signer's name, in which a colon replaces the slash.
func validateTrustBundleName(name string, p *field.Path) field.ErrorList {
	last := name[strings.LastIndex(name, ":")+1:]
	var errs field.ErrorList
	for _, msg := range apivalidation.NameIsDNSSubdomain(last, false) {
		errs = append(errs, field.Invalid(p, name, "not a valid clustertrustbundlename: "+msg))
	}
	return errs
}

// validateSignerName requires a domain and one path segment.
func validateSignerName(name string, p *field.Path) field.ErrorList {
	domain, segment, ok := strings.Cut(name, "/")
	switch {
	case name == "":
		return field.ErrorList{field.Required(p, "")}
	case !ok || strings.Contains(segment, "/"):
		return field.ErrorList{field.Invalid(p, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	errs := validation.IsFullyQualifiedDomainName(p, domain)
	return append(errs, resource.Invalid(p, name, validation.IsDNS1123Subdomain(segment))...)
}

// The bounds of the life of a pod's certificate, in seconds; signers of
// kubernetes.io may issue one day at most (certificates.k8s.io/v1beta1).
const (
	minPodCertificateSeconds           = 3600
	maxPodCertificateSeconds           = 7862400
	maxKubernetesPodCertificateSeconds = 86400
)

func (f projectedFiles) validatePodCertificate(s *corev1.PodCertificateProjection, p *field.Path) field.ErrorList {
	errs := validateSignerName(s.SignerName, p.Child("signerName"))
	annotations := p.Child("userAnnotations")
	for key := range s.UserAnnotations {
		errs = append(errs, validation.IsDomainPrefixedKey(annotations, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(s.UserAnnotations) != nil {
		errs = append(errs, field.TooLong(annotations, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	errs = append(errs, resource.OptionalOneOf(p.Child("keyType"), &s.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")...)
	if seconds := s.MaxExpirationSeconds; seconds != nil {
		most := int32(maxPodCertificateSeconds)
		if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
			most = maxKubernetesPodCertificateSeconds
		}
		if *seconds < minPodCertificateSeconds || *seconds > most {
			errs = append(errs, field.Invalid(p.Child("maxExpirationSeconds"), *seconds, validation.InclusiveRangeError(minPodCertificateSeconds, int(most))))
		}
	}
	if s.CredentialBundlePath == "" && s.KeyPath == "" && s.CertificateChainPath == "" {
		return append(errs, field.Required(p, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	for _, file := range []struct{ name, path string }{
		{"credentialBundlePath", s.CredentialBundlePath}, {"keyPath", s.KeyPath}, {"certificateChainPath", s.CertificateChainPath},
	} {
		if file.path != "" {
			errs = append(errs, staysInVolume(file.path, p.Child(file.name))...)
			errs = append(errs, f.add(file.path, file.path)...)
		}
	}
	return errs
}

// ValidateNoBacksteps forbids a path with the element "..".
func ValidateNoBacksteps(target string, p *field.Path) field.ErrorList {
	for _, element := range strings.Split(target, "/") {
		if element == ".." {
			return field.ErrorList{field.Invalid(p, target, "must not contain '..'")}
		}
	}
	return nil
}

// descends requires a relative path without the element "..".
func descends(target string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(target) {
		errs = append(errs, field.Invalid(p, target, "must be a relative path"))
	}
	return append(errs, ValidateNoBacksteps(target, p)...)
}

// staysInVolume requires a path that descends and does not begin with "..": the
// atomic writer of volumes uses such names.
func staysInVolume(target string, p *field.Path) field.ErrorList {
	errs := descends(target, p)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		errs = append(errs, field.Invalid(p, target, "must not start with '..'"))
	}
	return errs
}

func validateEphemeral(s *corev1.EphemeralVolumeSource, p *field.Path) field.ErrorList {
	p = p.Child("volumeClaimTemplate")
	if s.VolumeClaimTemplate == nil {
		return field.ErrorList{field.Required(p, "")}
	}
	meta := &s.VolumeClaimTemplate.ObjectMeta
	errs := apivalidation.ValidateAnnotations(meta.Annotations, p.Child("metadata", "annotations"))
	errs = append(errs, metav1validation.ValidateLabels(meta.Labels, p.Child("metadata", "labels"))...)
	errs = append(errs, mayOnlySet(*meta, sets.New("Annotations", "Labels"), "cannot be set", p.Child("metadata"))...)
	return append(errs, ValidateClaimSpec(&s.VolumeClaimTemplate.Spec, p.Child("spec"))...)
}
