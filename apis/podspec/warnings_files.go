package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// file is a path in a volume and where it comes from.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// warnOverlappingFiles warns of files of a volume with the same path, or with one
// below the other: the volume can hold only one of them.
func warnOverlappingFiles(spec *corev1.PodSpec, _ map[string]string, _ *field.Path) []string {
	var warnings []string
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		switch {
		case v.ConfigMap != nil:
			warnings = append(warnings, overlaps(v.Name, fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), filesOf(v.ConfigMap.Items, ""))...)
		case v.Secret != nil:
			warnings = append(warnings, overlaps(v.Name, fmt.Sprintf("Secret %q", v.Secret.SecretName), filesOf(v.Secret.Items, ""))...)
		case v.DownwardAPI != nil:
			warnings = append(warnings, overlaps(v.Name, "DownwardAPI", downwardFilesOf(v.DownwardAPI.Items, ""))...)
		case v.Projected != nil:
			var files []file
			for _, source := range v.Projected.Sources {
				if source == (corev1.VolumeProjection{}) {
					warnings = append(warnings, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				}
				files = append(files, projectedFilesOf(&source)...)
			}
			warnings = append(warnings, overlaps(v.Name, "Projected", files)...)
		}
	}
	return warnings
}

func overlaps(volume, kind string, files []file) []string {
	var warnings []string
	for i := range files {
		a := strings.TrimRight(files[i].path, "/") + "/"
		for j := range i {
			b := strings.TrimRight(files[j].path, "/") + "/"
			if files[i].path != "" && files[j].path != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
				warnings = append(warnings, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", volume, kind, files[i], files[j]))
			}
		}
	}
	return warnings
}

func filesOf(items []corev1.KeyToPath, source string) []file {
	var files []file
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

func downwardFilesOf(items []corev1.DownwardAPIVolumeFile, source string) []file {
	var files []file
	for _, item := range items {
		files = append(files, file{item.Path, source})
	}
	return files
}

func projectedFilesOf(source *corev1.VolumeProjection) []file {
	switch {
	case source.ConfigMap != nil:
		return filesOf(source.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", source.ConfigMap.Name))
	case source.Secret != nil:
		return filesOf(source.Secret.Items, fmt.Sprintf("Secret %q", source.Secret.Name))
	case source.DownwardAPI != nil:
		return downwardFilesOf(source.DownwardAPI.Items, "DownwardAPI")
	case source.ServiceAccountToken != nil:
		return []file{{source.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case source.ClusterTrustBundle != nil:
		return []file{{source.ClusterTrustBundle.Path, "ClusterTrustBundle"}}
	case source.PodCertificate != nil:
		return []file{
			{source.PodCertificate.CertificateChainPath, "PodCertificate chain"},
			{source.PodCertificate.KeyPath, "PodCertificate key"},
			{source.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"},
		}
	}
	return nil
}
