package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

func validateEnv(vars []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, path := &vars[i], path.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			errs = append(errs, resource.Invalid(path.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))...)
		}
		if v.ValueFrom != nil {
			errs = append(errs, validateEnvSource(v, path.Child("valueFrom"))...)
		}
	}
	return errs
}

func validateEnvSource(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	from := v.ValueFrom
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(from.FieldRef, envFieldPaths, path.Child("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceFieldRef(from.ResourceFieldRef, path.Child("resourceFieldRef"))...)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, path.Child("configMapKeyRef"))...)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		errs = append(errs, validateKeyRef(ref.Name, ref.Key, path.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, validateFileKeyRef(from.FileKeyRef, path.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := resource.Invalid(path.Child("name"), name, validation.IsDNS1123Subdomain(name))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, resource.Invalid(path.Child("key"), key, validation.IsConfigMapKey(key))...)
}

func validateFileKeyRef(ref *corev1.FileKeySelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Key == "" {
		errs = append(errs, field.Required(path.Child("key"), ""))
	} else {
		errs = append(errs, resource.Invalid(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName(ref.Key))...)
	}
	errs = append(errs, validateLabelName(path.Child("volumeName"), ref.VolumeName)...)
	if ref.Path == "" {
		return append(errs, field.Required(path.Child("path"), ""))
	}
	return append(errs, ValidateNoBacksteps(ref.Path, path.Child("path"))...)
}

// fileKeysReferToEmptyDirs requires that the files of fileKeyRef are in emptyDir
// volumes, where the pod's own containers have written them.
func fileKeysReferToEmptyDirs(s *podSpec) field.ErrorList {
	var errs field.ErrorList
	for at, c := range All(s.PodSpec) {
		for i, env := range c.Env {
			if env.ValueFrom == nil || env.ValueFrom.FileKeyRef == nil {
				continue
			}
			name := env.ValueFrom.FileKeyRef.VolumeName
			path := at.Path(s.path).Child("env").Index(i).Child("valueFrom", "fileKeyRef", "volumeName")
			if volume := s.volumes[name]; volume == nil {
				errs = append(errs, field.NotFound(path, name))
			} else if volume.EmptyDir == nil {
				errs = append(errs, field.Invalid(path, name, "referenced volume must be of type emptyDir"))
			}
		}
	}
	return errs
}

func validateEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, source := range sources {
		item := path.Index(i)
		if source.Prefix != "" {
			errs = append(errs, resource.Invalid(item.Child("prefix"), source.Prefix, validation.IsRelaxedEnvVarName(source.Prefix))...)
		}
		if source.ConfigMapRef != nil {
			errs = append(errs, validateEnvFromName(source.ConfigMapRef.Name, item.Child("configMapRef", "name"))...)
		}
		if source.SecretRef != nil {
			errs = append(errs, validateEnvFromName(source.SecretRef.Name, item.Child("secretRef", "name"))...)
		}
		switch {
		case source.ConfigMapRef == nil && source.SecretRef == nil:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case source.ConfigMapRef != nil && source.SecretRef != nil:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

func validateEnvFromName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return resource.Invalid(path, name, validation.IsDNS1123Subdomain(name))
}

// The fields of a pod that its containers may see as environment variables
// and as files; single labels and annotations can be named, too.
var (
	envFieldPaths = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	fileFieldPaths = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
	// knownFieldPaths are all paths of the downward API; not every place allows
	// each of them.
	knownFieldPaths = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.host", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.phase", "status.podIP", "status.podIPs"}
)

func validateFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	if ref.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	fieldPath := path.Child("fieldPath")
	if ref.FieldPath == "" {
		return field.ErrorList{field.Required(fieldPath, "")}
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(fieldPath, ref.FieldPath, "error converting fieldPath: unsupported pod version: "+ref.APIVersion)}
	}
	if of, key, ok := cutSubscript(ref.FieldPath); ok {
		switch of {
		case "metadata.annotations":
			return resource.Invalid(path, strings.ToLower(key), validation.IsQualifiedName(strings.ToLower(key)))
		case "metadata.labels":
			return resource.Invalid(path, key, validation.IsQualifiedName(key))
		}
		return field.ErrorList{field.Invalid(fieldPath, ref.FieldPath, "error converting fieldPath: field label does not support subscript: "+ref.FieldPath)}
	}
	if !slices.Contains(knownFieldPaths, ref.FieldPath) {
		return field.ErrorList{field.Invalid(fieldPath, ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)}
	}
	return resource.OptionalOneOf(fieldPath, &ref.FieldPath, allowed...)
}

// cutSubscript splits "metadata.labels['key']".
func cutSubscript(fieldPath string) (of, key string, ok bool) {
	rest, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return fieldPath, "", false
	}
	of, key, ok = strings.Cut(rest, "['")
	if !ok || of == "" {
		return fieldPath, "", false
	}
	return of, key, true
}

// resourceFields are the resources that resourceFieldRef supports. Those of huge
// pages have a prefix.
var resourceFields = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory",
	"requests.cpu", "requests.ephemeral-storage", "requests.memory"}

func validateResourceFieldRef(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), ""))
	} else if !isHugePagesField(ref.Resource) {
		errs = append(errs, resource.OptionalOneOf(path.Child("resource"), &ref.Resource, resourceFields...)...)
	}
	return append(errs, validateDivisor(ref, path.Child("divisor"))...)
}

func isHugePagesField(resource string) bool {
	return strings.HasPrefix(resource, "limits.hugepages-") || strings.HasPrefix(resource, "requests.hugepages-")
}

var byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}

func validateDivisor(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if ref.Divisor.IsZero() {
		return nil
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	allowed, listed := byteDivisors, strings.Join(byteDivisors, ", ")
	switch {
	case name == "cpu":
		allowed, listed = []string{"1m", "1"}, "1m and 1"
	case name == "memory":
	case name == "ephemeral-storage":
		name = "local ephemeral storage"
	case isHugePagesField(ref.Resource):
		name = "hugepages"
	default:
		return nil
	}
	if slices.Contains(allowed, ref.Divisor.String()) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, ref.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", listed, name))}
}
