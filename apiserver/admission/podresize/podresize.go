// Package podresize owns the admission plugin PodResizeValidator of Kubernetes: a pod that
// runs on a node is not resized to more than the node has for pods, nor on a node of another
// operating system than Linux. Without the plugin the node reports such a resize as
// infeasible (KEP-1287).
package podresize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodResizeValidator"

// The causes of a refusal, by which clients tell it from others.
const (
	nodeCapacity        metav1.CauseType = "NodeCapacity"
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Register registers the plugin. It handles no request unless enabled, which is called when
// the server starts, returns true.
func Register(plugins *admission.Plugins, enabled func() bool) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		if !enabled() {
			return &plugin{kindreader.NewWithClient()}, nil
		}
		return &plugin{kindreader.NewWithClient(admission.Update)}, nil
	})
}

type plugin struct{ kindreader.WithClient }

var _ admission.ValidationInterface = &plugin{}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, isPod := a.GetObject().(*corev1.Pod)
	old, wasPod := a.GetOldObject().(*corev1.Pod)
	if !isPod || !wasPod || a.GetSubresource() != "resize" || pod.Spec.NodeName == "" || equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		return nil
	}
	node, err := p.Node(ctx, a, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	if os, named := node.Labels[corev1.LabelOSStable]; named && os != string(corev1.Linux) {
		return refuse(a, unsupportedPlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os))
	}
	if missing := exceeded(pod, node.Status.Allocatable); len(missing) > 0 {
		return refuse(a, nodeCapacity, fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(missing, "; ")))
	}
	return nil
}

// exceeded describes those of cpu and memory of which the pod requests more than the node
// has for pods.
func exceeded(pod *corev1.Pod, allocatable corev1.ResourceList) []string {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var missing []string
	if cpu := requests.Cpu(); cpu.Cmp(*allocatable.Cpu()) > 0 {
		missing = append(missing, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), allocatable.Cpu().MilliValue()))
	}
	if memory := requests.Memory(); memory.Cmp(*allocatable.Memory()) > 0 {
		missing = append(missing, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), allocatable.Memory().Value()))
	}
	return missing
}

// refuse returns the error Forbidden with a cause.
func refuse(a admission.Attributes, cause metav1.CauseType, err error) error {
	refused := admission.NewForbidden(a, err)
	var status *apierrors.StatusError
	if errors.As(refused, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return refused
}
