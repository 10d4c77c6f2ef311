// Package alwayspullimages owns the admission plugin AlwaysPullImages of Kubernetes:
// every container pulls its image when it starts, with the credentials of its pod. So
// a pod cannot use a private image only because it is on the node already.
package alwayspullimages

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/podspec"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "AlwaysPullImages"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct{ *admission.Handler }

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if pod := withNewImages(a); pod != nil {
		for _, c := range podspec.All(&pod.Spec) {
			c.ImagePullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := withNewImages(a)
	if pod == nil {
		return nil
	}
	var errs []error
	for at, c := range podspec.All(&pod.Spec) {
		if c.ImagePullPolicy != corev1.PullAlways {
			path := at.Path(field.NewPath("spec")).Child("imagePullPolicy")
			errs = append(errs, admission.NewForbidden(a, field.NotSupported(path, c.ImagePullPolicy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// withNewImages returns the pod of a request that adds images, or nil.
func withNewImages(a admission.Attributes) *corev1.Pod {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	known := sets.New[string]()
	if old, ok := a.GetOldObject().(*corev1.Pod); ok {
		for _, c := range podspec.All(&old.Spec) {
			known.Insert(c.Image)
		}
	}
	for _, c := range podspec.All(&pod.Spec) {
		if a.GetOperation() == admission.Create || !known.Has(c.Image) {
			return pod
		}
	}
	return nil
}
