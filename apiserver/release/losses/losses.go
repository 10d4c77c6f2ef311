// Package losses owns the question what of a stored object a release cannot keep.
package losses

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"svc.dev/svc/apis/certificates"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release"
)

// WholeObject is the loss of an object whose kind the release does not serve.
const WholeObject = "the kind"

// Finder finds what a release cannot keep. Its methods may be called concurrently.
type Finder struct {
	served  release.Served
	scheme  *runtime.Scheme
	decoder runtime.Decoder
}

// New returns a finder for what a release serves. The scheme has the kinds in all their
// versions (apis.NewScheme).
func New(served release.Served, scheme *runtime.Scheme) *Finder {
	return &Finder{served: served, scheme: scheme, decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer()}
}

// OfEncoded is Of for an object of the kind in any of its versions, in JSON.
func (f *Finder) OfEncoded(k *resource.Kind, encoded []byte) ([]string, error) {
	obj, gvk, err := f.decoder.Decode(encoded, nil, nil)
	if err != nil {
		return nil, err
	}
	if *gvk != k.Hub {
		if obj, err = f.convert(obj, k.Hub); err != nil {
			return nil, err
		}
	}
	return f.Of(k, obj)
}

// convert returns an object in another version of its kind, which may be in another group.
func (f *Finder) convert(obj runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	converted, err := f.scheme.New(to)
	if err != nil {
		return nil, err
	}
	return converted, f.scheme.Convert(obj, converted, nil)
}

// Of returns what the release would lose of an object, given as the hub's Go type: the
// paths of fields, sorted, or WholeObject. These are no losses: statuses, which their
// writers compute again; values that a server sets by default; and objects that the
// server, a controller or an agent makes again from others.
func (f *Finder) Of(k *resource.Kind, obj runtime.Object) ([]string, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if derived(obj, m) {
		return nil, nil
	}
	versions := f.served.Versions(k)
	if len(versions) == 0 {
		return []string{WholeObject}, nil
	}
	at := k.Hub
	if !slices.Contains(versions, k.Hub) {
		at = versions[0]
		if obj, err = f.convert(obj, at); err != nil {
			return nil, fmt.Errorf("%s %s: %w", k.Resource(), m.GetName(), err)
		}
	}
	return f.fields(k.Hub, at, obj)
}

// OfDefinition is Of for a definition of custom resources, which every release has in v1.
func (f *Finder) OfDefinition(d *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	gvk := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	return f.fields(gvk, gvk, d)
}

// fields returns the paths of the fields of an object of the version that would be lost.
func (f *Finder) fields(hub, gvk schema.GroupVersionKind, obj runtime.Object) ([]string, error) {
	n := f.served.Fields().Of(gvk, reflect.TypeOf(obj).Elem())
	lost := n.Values(obj)
	maps.DeleteFunc(lost, func(path string, _ any) bool {
		first, _, _ := strings.Cut(path, ".")
		return first == "status" || first == "metadata"
	})
	if len(lost) == 0 {
		return nil, nil
	}
	without := obj.DeepCopyObject()
	n.Remove(without)
	defaulted, err := f.defaulted(hub, gvk, without)
	if err != nil {
		return nil, err
	}
	again := n.Values(defaulted)
	maps.DeleteFunc(lost, func(path string, value any) bool {
		return equality.Semantic.DeepEqual(again[path], value) || computed(obj, path)
	})
	return slices.Sorted(maps.Keys(lost)), nil
}

// defaulted returns an object of the version with the defaults of a created one: those of
// the version, and then those of the hub.
func (f *Finder) defaulted(hub, gvk schema.GroupVersionKind, obj runtime.Object) (runtime.Object, error) {
	f.scheme.Default(obj)
	if gvk == hub {
		return obj, nil
	}
	inMemory, err := f.convert(obj, hub)
	if err != nil {
		return nil, err
	}
	f.scheme.Default(inMemory)
	return f.convert(inMemory, gvk)
}

// computed reports whether the server computes a field of an object from others.
func computed(obj runtime.Object, path string) bool {
	service, ok := obj.(*corev1.Service)
	if !ok || len(service.Spec.IPFamilies) > 1 || len(service.Spec.ClusterIPs) > 1 {
		return false
	}
	switch path {
	case "spec.clusterIPs", "spec.ipFamilies":
		return true
	case "spec.ipFamilyPolicy":
		return *service.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	}
	return false
}

// derived reports whether the server, a controller or an agent makes an object again from
// others, or it is of passing interest only.
func derived(obj runtime.Object, m metav1.Object) bool {
	switch obj := obj.(type) {
	case *corev1.Event, *coordinationv1.Lease, *coordinationv1beta1.LeaseCandidate, *networkingv1.IPAddress, *certificatesv1.PodCertificateRequest:
		return true
	case *certificatesv1.ClusterTrustBundle:
		return obj.Spec.SignerName == certificates.APIServerServing // published by a controller
	case *networkingv1.ServiceCIDR:
		return m.GetName() == "kubernetes" // of the server's flags
	case *flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration:
		return m.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true"
	case *discoveryv1.EndpointSlice:
		return m.GetLabels()[discoveryv1.LabelManagedBy] != "" || m.GetName() == "kubernetes"
	}
	return metav1.GetControllerOf(m) != nil
}
