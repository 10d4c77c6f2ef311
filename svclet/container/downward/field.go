package downward

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Addresses are addresses that the pod's object may not have yet, the primary one
// first.
type Addresses struct {
	PodIPs, HostIPs []string
}

// Variable returns the value of a fieldRef in a container's environment: the
// fields of [Field], and also the node, the service account and the addresses.
func Variable(pod *corev1.Pod, selector *corev1.ObjectFieldSelector, addresses Addresses) (string, error) {
	if selector.APIVersion != "" && selector.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", selector.APIVersion)
	}
	switch selector.FieldPath {
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return primary(addresses.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(addresses.HostIPs, ","), nil
	case "status.podIP":
		return primary(addresses.PodIPs), nil
	case "status.podIPs":
		return strings.Join(addresses.PodIPs, ","), nil
	default:
		return Field(pod, selector.FieldPath)
	}
}

func primary(ips []string) string {
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}

// Field returns the value of a field of a pod's metadata. For labels or
// annotations it returns all of them, one per line, or a single one
// ("metadata.labels['app']").
func Field(pod *corev1.Pod, path string) (string, error) {
	if path, key, subscripted := split(path); subscripted {
		return entry(pod, path, key)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	default:
		return "", fmt.Errorf("unsupported fieldPath: %v", path)
	}
}

// split splits "metadata.labels['app']" into field and key.
func split(path string) (field, key string, subscripted bool) {
	inside, ends := strings.CutSuffix(path, "']")
	field, key, begins := strings.Cut(inside, "['")
	if !ends || !begins || field == "" {
		return path, "", false
	}
	return field, key, true
}

func entry(pod *corev1.Pod, path, key string) (string, error) {
	var entries map[string]string
	name := key
	switch path {
	case "metadata.labels":
		entries = pod.Labels
	case "metadata.annotations":
		// The prefix of an annotation may have upper case letters.
		entries, name = pod.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", path+"['"+key+"']")
	}
	if problems := validation.IsQualifiedName(name); len(problems) != 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", path+"['"+key+"']", strings.Join(problems, ";"))
	}
	return entries[key], nil
}

// lines returns sorted key="value" lines.
func lines(entries map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, key+"="+strconv.Quote(entries[key]))
	}
	return strings.Join(out, "\n")
}
