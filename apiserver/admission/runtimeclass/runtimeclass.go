// Package runtimeclass owns the admission plugin RuntimeClass of Kubernetes: new pods
// get the overhead, node selector and tolerations of their runtime class.
// https://kubernetes.io/docs/concepts/containers/runtime-class
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	nodelisters "k8s.io/client-go/listers/node/v1"

	"svc.dev/svc/apiserver/admission/kindreader"
	"svc.dev/svc/apiserver/admission/tolerations"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "RuntimeClass"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Create)}, nil
	})
}

type plugin struct {
	kindreader.Reader[nodelisters.RuntimeClassLister]
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[nodelisters.RuntimeClassLister] {
	return f.Node().V1().RuntimeClasses()
}

// The errors of pods whose overhead is not that of their class.
var (
	errOtherOverhead = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOwnOverhead   = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" || pod.Spec.RuntimeClassName == nil {
		return nil
	}
	class, err := p.class(ctx, a, *pod.Spec.RuntimeClassName)
	if err != nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return admission.NewForbidden(a, errOtherOverhead)
		}
		pod.Spec.Overhead = class.Overhead.DeepCopy().PodFixed
	}
	if class.Scheduling != nil {
		if err := restrict(pod, class.Scheduling); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// restrict adds the node selector and the tolerations of a class to a pod.
func restrict(pod *corev1.Pod, scheduling *nodev1.Scheduling) error {
	for key, value := range scheduling.NodeSelector {
		if own, ok := pod.Spec.NodeSelector[key]; ok && own != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, own)
		}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.Spec.NodeSelector, scheduling.NodeSelector)
	pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, scheduling.DeepCopy().Tolerations)
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	class := &nodev1.RuntimeClass{}
	if name := pod.Spec.RuntimeClassName; name != nil {
		var err error
		if class, err = p.class(ctx, a, *name); err != nil {
			return err
		}
	}
	switch {
	case class.Overhead == nil && pod.Spec.Overhead != nil:
		return admission.NewForbidden(a, errOwnOverhead)
	case class.Overhead != nil && !apiequality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return admission.NewForbidden(a, errOtherOverhead)
	}
	return nil
}

// class returns a runtime class.
func (p *plugin) class(ctx context.Context, a admission.Attributes, name string) (*nodev1.RuntimeClass, error) {
	if err := p.Ready(a); err != nil {
		return nil, err
	}
	unknown := admission.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	if name == "" || len(content.IsPathSegmentName(name)) > 0 {
		return nil, unknown // it cannot be part of a URL
	}
	class, err := kindreader.Get(ctx, name, p.Lister.Get, p.Client.NodeV1().RuntimeClasses().Get)
	if apierrors.IsNotFound(err) {
		return nil, unknown
	}
	return class, err
}
