// Package podtolerations owns the admission plugin PodTolerationRestriction of
// Kubernetes: annotations of the namespace, or a configuration, add tolerations to
// its pods and restrict them to a whitelist.
package podtolerations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apiserver/admission/namespaces"
	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/admission/tolerations"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodTolerationRestriction"

// The annotations of a namespace are JSON lists of tolerations.
const (
	defaultAnnotation   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	whitelistAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// configuration has the lists for namespaces without the annotations.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Default         []corev1.Toleration `json:"default,omitempty"`
	Whitelist       []corev1.Toleration `json:"whitelist,omitempty"`
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) {
		p := &plugin{Reader: namespaces.NewReader(admission.Create, admission.Update)}
		kind := metav1.TypeMeta{APIVersion: "podtolerationrestriction.admission.k8s.io/v1alpha1", Kind: "Configuration"}
		if err := pluginconfig.ReadKind(PluginName, file, &p.cluster, &p.cluster.TypeMeta, kind); err != nil {
			return nil, err
		}
		return p, nil
	})
}

type plugin struct {
	namespaces.Reader
	cluster configuration
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// Admit implements admission.MutationInterface. Pods that are not BestEffort also
// tolerate nodes under memory pressure.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	var extra []corev1.Toleration
	if a.GetOperation() == admission.Create {
		own, found, err := p.annotated(ctx, a, defaultAnnotation)
		if err != nil {
			return err
		}
		if !found {
			own = p.cluster.Default
		}
		extra = slices.Clone(own)
	}
	if podspec.QOSClassOf(pod) != corev1.PodQOSBestEffort {
		extra = append(extra, corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(extra) > 0 {
		pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, extra)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" || len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	scope := "namespace"
	whitelist, found, err := p.annotated(ctx, a, whitelistAnnotation)
	if err != nil {
		return err
	}
	if !found {
		scope, whitelist = "cluster", p.cluster.Whitelist
	}
	if !tolerations.Allowed(pod.Spec.Tolerations, whitelist) {
		return admission.NewForbidden(a, fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope))
	}
	return nil
}

// annotated returns the tolerations in an annotation of the request's namespace, and
// reports whether it has the annotation. An empty one is an empty list.
func (p *plugin) annotated(ctx context.Context, a admission.Attributes, name string) (list []corev1.Toleration, found bool, err error) {
	namespace, err := p.Of(ctx, a)
	if err != nil {
		return nil, false, err
	}
	text, found := namespace.Annotations[name]
	if text == "" {
		return nil, found, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, apierrors.NewInternalError(fmt.Errorf("annotation %s of namespace %s: %w", name, namespace.Name, err))
	}
	return list, true, nil
}
