package convert

import (
	"fmt"
	"slices"
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
	// stays reports whether an object has the replacement, too, by the key without its
	// prefix. If it is set, an object that does not loses what the annotation protects.
	stays func(obj *yaml.Node, name string) bool
}

// deprecatedKeys are those of the reference "Well-Known Labels, Annotations and Taints"
// of the documentation.
func deprecatedKeys() []deprecatedKey {
	return []deprecatedKey{
		{"scheduler.alpha.kubernetes.io/critical-pod", 13, 16, "spec.priorityClassName", nil},
		{"seccomp.security.alpha.kubernetes.io/pod", 19, 27, "spec.securityContext.seccompProfile", podSeccomp},
		{"container.seccomp.security.alpha.kubernetes.io/", 19, 27, "securityContext.seccompProfile of the container", containerSeccomp},
		{"container.apparmor.security.beta.kubernetes.io/", 30, 0, "securityContext.appArmorProfile of the container", nil},
		{"kubernetes.io/ingress.class", 18, 0, "spec.ingressClassName", nil},
		{"service.kubernetes.io/topology-aware-hints", 27, 0, "service.kubernetes.io/topology-mode", nil},
		{"volume.beta.kubernetes.io/storage-class", 8, 0, "spec.storageClassName", nil},
		{"volume.beta.kubernetes.io/storage-provisioner", 23, 0, "volume.kubernetes.io/storage-provisioner", nil},
		{"volume.beta.kubernetes.io/mount-options", 31, 0, "spec.mountOptions", nil},
		{"node-role.kubernetes.io/master", 20, 0, "node-role.kubernetes.io/control-plane", nil},
		{"beta.kubernetes.io/arch", 14, 0, "kubernetes.io/arch", nil},
		{"beta.kubernetes.io/os", 14, 0, "kubernetes.io/os", nil},
		{"beta.kubernetes.io/instance-type", 17, 0, "node.kubernetes.io/instance-type", nil},
		{"failure-domain.beta.kubernetes.io/zone", 17, 0, "topology.kubernetes.io/zone", nil},
		{"failure-domain.beta.kubernetes.io/region", 17, 0, "topology.kubernetes.io/region", nil},
	}
}

// podSeccomp reports whether all containers of a pod have a profile.
func podSeccomp(pod *yaml.Node, _ string) bool {
	return !slices.ContainsFunc(containersOf(pod), func(c *yaml.Node) bool { return !hasSeccomp(pod, c) })
}

// containerSeccomp reports whether a container of a pod has a profile. One that is not
// there needs none.
func containerSeccomp(pod *yaml.Node, name string) bool {
	return !slices.ContainsFunc(containersOf(pod), func(c *yaml.Node) bool { return manifest.Text(c, "name") == name && !hasSeccomp(pod, c) })
}

func containersOf(pod *yaml.Node) []*yaml.Node {
	return slices.Concat(manifest.Items(pod, "spec", "initContainers"), manifest.Items(pod, "spec", "containers"))
}

// hasSeccomp reports whether a container has a profile: its own, or that of the pod.
func hasSeccomp(pod, container *yaml.Node) bool {
	const key, profile = "securityContext", "seccompProfile"
	return !manifest.IsNull(manifest.Get(container, key, profile)) || !manifest.IsNull(manifest.Get(pod, "spec", key, profile))
}

// metadata finds deprecated annotations and labels of an object, or of the template of one.
func (w *walk) metadata(obj, meta *yaml.Node, path string) {
	for _, in := range []string{"annotations", "labels"} {
		entries := manifest.Get(meta, in)
		if entries == nil || entries.Kind != yaml.MappingNode {
			continue
		}
		for i := 0; i+1 < len(entries.Content); i += 2 {
			w.deprecated(obj, entries.Content[i], entries.Content[i+1].Value, join(join(path, in), entries.Content[i].Value))
		}
	}
}

// deprecated finds a deprecated annotation or label, named by a node, of an object. value
// is that of the annotation.
func (w *walk) deprecated(obj, at *yaml.Node, value, path string) {
	for _, d := range deprecatedKeys() {
		name, isPart := strings.CutPrefix(at.Value, d.key)
		if w.release < d.since || !isPart || name != "" && !strings.HasSuffix(d.key, "/") {
			continue
		}
		switch {
		case d.gone == 0 || w.release < d.gone:
			w.outcome.find(DeprecatedMetadata, Warning, "", at, path, fmt.Sprintf("deprecated since %v; use %s", d.since, d.instead))
		case d.stays != nil && value != "unconfined" && !w.patch && !d.stays(obj, name):
			w.outcome.find(DeprecatedMetadata, Error, Decide, at, path, fmt.Sprintf("without effect since %v, so the containers run unconfined; use %s", d.gone, d.instead))
		default:
			w.outcome.find(DeprecatedMetadata, Warning, "", at, path, fmt.Sprintf("without effect since %v; use %s", d.gone, d.instead))
		}
	}
}

// nodeLabels finds deprecated labels of nodes in a field of a type that names such labels.
func (w *walk) nodeLabels(of *releases.Type, field string, value *yaml.Node, path string) {
	switch of.Name + "." + field {
	case "NodeSelectorRequirement.key", "TopologySelectorLabelRequirement.key", "PodAffinityTerm.topologyKey", "TopologySpreadConstraint.topologyKey":
		if value.Kind == yaml.ScalarNode {
			w.deprecated(nil, value, "", path)
		}
	case "PodSpec.nodeSelector", "Scheduling.nodeSelector":
		w.labels(value, path)
	case "CSIStorageCapacity.nodeTopology":
		w.labels(manifest.Get(value, "matchLabels"), path+".matchLabels")
	}
}

func (w *walk) labels(labels *yaml.Node, path string) {
	if labels == nil || labels.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(labels.Content); i += 2 {
		w.deprecated(nil, labels.Content[i], "", join(path, labels.Content[i].Value))
	}
}
