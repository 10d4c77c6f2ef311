// Package alwayspullimages owns the admission plugin AlwaysPullImages of Kubernetes:
// every container and every image volume (KEP-4639) pulls its image when it starts, with
// the credentials of its pod. So a pod cannot use a private image only because it is on the node already.
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
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				v.Image.PullPolicy = corev1.PullAlways
			}
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
	expectAlways := func(path *field.Path, policy corev1.PullPolicy) {
		if policy != corev1.PullAlways {
			errs = append(errs, admission.NewForbidden(a, field.NotSupported(path, policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	spec := field.NewPath("spec")
	for at, c := range podspec.All(&pod.Spec) {
		expectAlways(at.Path(spec).Child("imagePullPolicy"), c.ImagePullPolicy)
	}
	for i, v := range pod.Spec.Volumes {
		if v.Image != nil {
			expectAlways(spec.Child("volumes").Index(i).Child("image", "pullPolicy"), v.Image.PullPolicy)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// withNewImages returns the pod of a request that adds images of containers, or nil. The
// volumes of a pod do not change.
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
