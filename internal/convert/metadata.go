package convert

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// deprecatedKey is an annotation or a label that has been replaced. One that ends with a
// slash is a prefix.
type deprecatedKey struct {
	key string
	// since is the release that deprecates it, gone the first that ignores it; 0 is not
	// declared.
	since, gone releases.Release
	instead     string
}

// deprecatedKeys are those of the reference "Well-Known Labels, Annotations and Taints"
// of the documentation.
func deprecatedKeys() []deprecatedKey {
	return []deprecatedKey{
		{"scheduler.alpha.kubernetes.io/critical-pod", 13, 16, "spec.priorityClassName"},
		{"seccomp.security.alpha.kubernetes.io/pod", 19, 27, "spec.securityContext.seccompProfile"},
		{"container.seccomp.security.alpha.kubernetes.io/", 19, 27, "securityContext.seccompProfile of the container"},
		{"container.apparmor.security.beta.kubernetes.io/", 30, 0, "securityContext.appArmorProfile of the container"},
		{"kubernetes.io/ingress.class", 18, 0, "spec.ingressClassName"},
		{"service.kubernetes.io/topology-aware-hints", 27, 0, "service.kubernetes.io/topology-mode"},
		{"beta.kubernetes.io/arch", 14, 0, "kubernetes.io/arch"},
		{"beta.kubernetes.io/os", 14, 0, "kubernetes.io/os"},
		{"beta.kubernetes.io/instance-type", 17, 0, "node.kubernetes.io/instance-type"},
		{"failure-domain.beta.kubernetes.io/zone", 17, 0, "topology.kubernetes.io/zone"},
		{"failure-domain.beta.kubernetes.io/region", 17, 0, "topology.kubernetes.io/region"},
	}
}

// metadata finds deprecated annotations and labels.
func (w *walk) metadata(meta *yaml.Node, path string) {
	for _, in := range []string{"annotations", "labels"} {
		entries := manifest.Get(meta, in)
		if entries == nil || entries.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(entries.Content); i += 2 {
			key := entries.Content[i]
			for _, d := range deprecatedKeys() {
				if w.release < d.since || key.Value != d.key && !(strings.HasSuffix(d.key, "/") && strings.HasPrefix(key.Value, d.key)) {
					continue
				}
				message := fmt.Sprintf("deprecated since %v; use %s", d.since, d.instead)
				if d.gone != 0 && w.release >= d.gone {
					message = fmt.Sprintf("without effect since %v; use %s", d.gone, d.instead)
				}
				w.outcome.find(DeprecatedMetadata, Warning, "", key, join(join(path, in), key.Value), message)
			}
		}
	}
}
