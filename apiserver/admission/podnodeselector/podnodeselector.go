// Package podnodeselector owns the admission plugin PodNodeSelector of Kubernetes: an
// annotation of the namespace, or a configuration, sets and restricts the node
// selectors of its pods.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apiserver/admission/namespaces"
	"svc.dev/svc/apiserver/admission/pluginconfig"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodNodeSelector"

// annotation of a namespace is the node selector of its pods: "key=value,...".
const annotation = "scheduler.alpha.kubernetes.io/node-selector"

// clusterDefault is the name in the configuration of the node selector for
// namespaces without the annotation.
const clusterDefault = "clusterDefaultNodeSelector"

// config is the configuration: the default, and by namespace the labels that the
// node selectors of its pods may have. No entry allows all labels.
type config struct {
	Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) {
		var c config
		if err := pluginconfig.Read(PluginName, file, &c); err != nil {
			return nil, err
		}
		p := &plugin{Reader: namespaces.NewReader(admission.Create), selectors: map[string]labels.Set{}}
		for name, text := range c.Selectors {
			set, err := labels.ConvertSelectorToLabelsMap(text)
			if err != nil {
				return nil, fmt.Errorf("configuration of %s: %s: invalid node selector: %w; write key=value,key=value", PluginName, name, err)
			}
			p.selectors[name] = set
		}
		return p, nil
	})
}

type plugin struct {
	namespaces.Reader
	selectors map[string]labels.Set
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

var (
	errConflict  = errors.New("pod node label selector conflicts with its namespace node label selector")
	errWhitelist = errors.New("pod node label selector labels conflict with its namespace whitelist")
)

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, required, err := p.compatible(ctx, a)
	if pod == nil || err != nil {
		return err
	}
	pod.Spec.NodeSelector = labels.Merge(required, pod.Spec.NodeSelector)
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, _, err := p.compatible(ctx, a)
	if pod == nil || err != nil {
		return err
	}
	if whitelist := p.selectors[a.GetNamespace()]; len(whitelist) > 0 && !within(pod.Spec.NodeSelector, whitelist) {
		return admission.NewForbidden(a, errWhitelist)
	}
	return nil
}

// compatible returns the pod of the request, nil if it has none, and the labels that its
// namespace requires of nodes. The request is refused if the pod's selector conflicts with them.
func (p *plugin) compatible(ctx context.Context, a admission.Attributes) (*corev1.Pod, labels.Set, error) {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil, nil, nil
	}
	required, err := p.required(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	if labels.Conflicts(required, pod.Spec.NodeSelector) {
		return nil, nil, admission.NewForbidden(a, errConflict)
	}
	return pod, required, nil
}

// required returns the node selector of the namespace's pods.
func (p *plugin) required(ctx context.Context, a admission.Attributes) (labels.Set, error) {
	namespace, err := p.Of(ctx, a)
	if err != nil {
		return nil, err
	}
	text, annotated := namespace.Annotations[annotation]
	if !annotated {
		return p.selectors[clusterDefault], nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("annotation %s of namespace %s: %w", annotation, namespace.Name, err))
	}
	return set, nil
}

// within reports whether all labels are in the whitelist, with its values.
func within(selector, whitelist labels.Set) bool {
	for key, value := range selector {
		if allowed, ok := whitelist[key]; !ok || allowed != value {
			return false
		}
	}
	return true
}
