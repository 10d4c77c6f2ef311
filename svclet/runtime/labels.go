package runtime

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Labels of sandboxes and containers. They are kubelet's, so that crictl and log
// collectors work.
const (
	PodNameLabel       = kubelettypes.KubernetesPodNameLabel
	PodNamespaceLabel  = kubelettypes.KubernetesPodNamespaceLabel
	PodUIDLabel        = kubelettypes.KubernetesPodUIDLabel
	ContainerNameLabel = kubelettypes.KubernetesContainerNameLabel
)

// Annotations of containers, also kubelet's.
const (
	HashAnnotation                     = "io.kubernetes.container.hash"
	RestartCountAnnotation             = "io.kubernetes.container.restartCount"
	TerminationMessagePathAnnotation   = "io.kubernetes.container.terminationMessagePath"
	TerminationMessagePolicyAnnotation = "io.kubernetes.container.terminationMessagePolicy"
	PreStopAnnotation                  = "io.kubernetes.container.preStopHandler"
	PortsAnnotation                    = "io.kubernetes.container.ports"
	DeletionGraceAnnotation            = "io.kubernetes.pod.deletionGracePeriod"
	TerminationGraceAnnotation         = "io.kubernetes.pod.terminationGracePeriod"
)

// ResourcesAnnotation is svclet's own: the CPU and memory that a container was created
// with, of a node whose pods can be resized in place.
const ResourcesAnnotation = "svc.dev/container-resources"

// ImagesAnnotation is svclet's own: the images that a container mounts as volumes, as
// references of the runtime, separated by commas.
const ImagesAnnotation = "svc.dev/mounted-images"

// ResourcesRecord returns the value of ResourcesAnnotation for a container.
func ResourcesRecord(container *corev1.Container) (string, error) {
	compute := func(list corev1.ResourceList) corev1.ResourceList {
		only := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := list[name]; ok {
				only[name] = q
			}
		}
		return only
	}
	raw, err := json.Marshal(corev1.ResourceRequirements{Limits: compute(container.Resources.Limits), Requests: compute(container.Resources.Requests)})
	return string(raw), err
}

// SandboxLabels returns the labels of a pod's sandbox: the pod's own and its
// identity.
func SandboxLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[PodNameLabel] = pod.Name
	labels[PodNamespaceLabel] = pod.Namespace
	labels[PodUIDLabel] = string(pod.UID)
	return labels
}

// SandboxAnnotations returns the annotations of a pod's sandbox, which are the
// pod's.
func SandboxAnnotations(pod *corev1.Pod) map[string]string {
	return maps.Clone(pod.Annotations)
}

// ContainerLabels returns the labels of a container.
func ContainerLabels(pod *corev1.Pod, container *corev1.Container) map[string]string {
	return map[string]string{
		PodNameLabel:       pod.Name,
		PodNamespaceLabel:  pod.Namespace,
		PodUIDLabel:        string(pod.UID),
		ContainerNameLabel: container.Name,
	}
}

// ContainerAnnotations returns the annotations of an attempt of a container. hash
// is its pod.SpecHash. extra are the annotations that devices require; the agent's
// own take precedence.
func ContainerAnnotations(
	pod *corev1.Pod, container *corev1.Container, attempt uint32, hash uint64, extra map[string]string,
) (map[string]string, error) {
	annotations := make(map[string]string, len(extra)+8)
	maps.Copy(annotations, extra)
	annotations[HashAnnotation] = strconv.FormatUint(hash, 16)
	annotations[RestartCountAnnotation] = strconv.FormatUint(uint64(attempt), 10)
	annotations[TerminationMessagePathAnnotation] = container.TerminationMessagePath
	annotations[TerminationMessagePolicyAnnotation] = string(container.TerminationMessagePolicy)
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		annotations[DeletionGraceAnnotation] = strconv.FormatInt(*grace, 10)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		annotations[TerminationGraceAnnotation] = strconv.FormatInt(*grace, 10)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(container.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("write the preStop hook of container %s of pod %s/%s: %w", container.Name, pod.Namespace, pod.Name, err)
		}
		annotations[PreStopAnnotation] = string(raw)
	}
	if len(container.Ports) > 0 {
		raw, err := json.Marshal(container.Ports)
		if err != nil {
			return nil, fmt.Errorf("write the ports of container %s of pod %s/%s: %w", container.Name, pod.Namespace, pod.Name, err)
		}
		annotations[PortsAnnotation] = string(raw)
	}
	return annotations, nil
}

// PodIdentity identifies the pod of a sandbox or a container.
type PodIdentity struct {
	UID             types.UID
	Namespace, Name string
}

// ReadPodIdentity reads the identity from the labels of a sandbox or a container.
// It returns false if they belong to no pod.
func ReadPodIdentity(labels map[string]string) (PodIdentity, bool) {
	identity := PodIdentity{
		UID:       types.UID(labels[PodUIDLabel]),
		Namespace: labels[PodNamespaceLabel],
		Name:      labels[PodNameLabel],
	}
	return identity, identity.UID != "" && identity.Namespace != "" && identity.Name != ""
}

// ReadPodLabels returns the pod's own labels among those of its sandbox.
func ReadPodLabels(labels map[string]string) map[string]string {
	own := maps.Clone(labels)
	for _, label := range []string{PodNameLabel, PodNamespaceLabel, PodUIDLabel} {
		delete(own, label)
	}
	return own
}

// ContainerRecord is what the agent stored on a container when it created it.
type ContainerRecord struct {
	Name string
	// SpecHash and RestartCount are 0 if they are missing or invalid.
	SpecHash     uint64
	RestartCount uint32
	// TerminationMessagePath is a path inside the container.
	TerminationMessagePath   string
	TerminationMessagePolicy corev1.TerminationMessagePolicy
	// Grace is the pod's termination grace period in seconds: that of its deletion if
	// it was being deleted, else of its spec, else the API default (30).
	Grace int64
	// PreStop and Ports are the container's, from the spec.
	PreStop *corev1.LifecycleHandler
	Ports   []corev1.ContainerPort
	// Resources are the CPU and memory that it was created with, if they were recorded.
	Resources *corev1.ResourceRequirements
}

// ReadContainerRecord reads the record from a container's labels and annotations.
// Missing or invalid values are left zero: containers of another agent, or of an
// older version, can still be observed and stopped.
func ReadContainerRecord(labels, annotations map[string]string) ContainerRecord {
	record := ContainerRecord{
		Name:                     labels[ContainerNameLabel],
		TerminationMessagePath:   annotations[TerminationMessagePathAnnotation],
		TerminationMessagePolicy: corev1.TerminationMessagePolicy(annotations[TerminationMessagePolicyAnnotation]),
		Grace:                    corev1.DefaultTerminationGracePeriodSeconds,
	}
	if hash, err := strconv.ParseUint(annotations[HashAnnotation], 16, 64); err == nil {
		record.SpecHash = hash
	}
	if count, err := strconv.ParseUint(annotations[RestartCountAnnotation], 10, 32); err == nil {
		record.RestartCount = uint32(count)
	}
	for _, name := range []string{TerminationGraceAnnotation, DeletionGraceAnnotation} {
		if grace, err := strconv.ParseInt(annotations[name], 10, 64); err == nil && grace >= 0 {
			record.Grace = grace
		}
	}
	if raw := annotations[PreStopAnnotation]; raw != "" {
		hook := &corev1.LifecycleHandler{}
		if err := json.Unmarshal([]byte(raw), hook); err == nil {
			record.PreStop = hook
		}
	}
	if raw := annotations[PortsAnnotation]; raw != "" {
		var ports []corev1.ContainerPort
		if err := json.Unmarshal([]byte(raw), &ports); err == nil {
			record.Ports = ports
		}
	}
	if raw := annotations[ResourcesAnnotation]; raw != "" {
		resources := &corev1.ResourceRequirements{}
		if err := json.Unmarshal([]byte(raw), resources); err == nil {
			record.Resources = resources
		}
	}
	return record
}
