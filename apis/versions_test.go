package apis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"svc.dev/svc/apis/resource"
)

// FuzzVersions: what is stored survives a client that reads and writes it in another
// version, and an object of another version survives being stored.
func FuzzVersions(f *testing.F) {
	kinds := Kinds()
	scheme, err := NewScheme(kinds)
	if err != nil {
		f.Fatal(err)
	}
	for seed := range int64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		for _, k := range kinds {
			if k.Hub.Group == "autoscaling" {
				continue // only valid objects survive: its own tests make them
			}
			for _, v := range k.Versions {
				obj := k.New()
				fill(obj, seed, versionValues...)
				k.Default(obj)
				through(t, scheme, obj, v.New(), k.New())
				other := v.New()
				fill(other, seed, versionValues...)
				scheme.Default(other)
				// Defaults of the hub may show in the version, too.
				stored, written := k.New(), v.New()
				convert(t, scheme, other, stored)
				convert(t, scheme, stored, written)
				through(t, scheme, written, k.New(), v.New())
			}
		}
	})
}

func through(t *testing.T, scheme *runtime.Scheme, obj, other, back runtime.Object) {
	t.Helper()
	before := obj.DeepCopyObject()
	convert(t, scheme, obj, other)
	convert(t, scheme, other.DeepCopyObject(), back)
	if !equality.Semantic.DeepEqual(obj, back) {
		t.Errorf("lost on the way through %T:\n%s", other, cmp.Diff(obj, back))
	}
	if !equality.Semantic.DeepEqual(before, obj) {
		t.Errorf("the conversion to %T changes its input:\n%s", other, cmp.Diff(before, obj))
	}
}

func convert(t *testing.T, scheme *runtime.Scheme, in, out runtime.Object) {
	t.Helper()
	if err := scheme.Convert(in, out, nil); err != nil {
		t.Fatal(err)
	}
}

// versionValues fill what validation or the meaning of a version restricts.
var versionValues = []any{
	func(b *networkingv1.IngressServiceBackend, c randfill.Continue) {
		b.Name = "s" + c.String(0)
		if b.Port.Number = c.Int31(); c.Bool() {
			b.Port = networkingv1.ServiceBackendPort{Name: "p" + c.String(0)}
		}
	},
	func(b *networkingv1beta1.IngressBackend, c randfill.Continue) {
		if c.Bool() {
			b.ServiceName, b.ServicePort = c.String(0), intstr.FromString("p"+c.String(0))
		}
	},
	func(e *discoveryv1beta1.Endpoint, c randfill.Continue) {
		if c.FillNoCustom(e); e.NodeName != nil {
			resource.Fill(&e.NodeName, "")
			if e.Topology == nil {
				e.Topology = map[string]string{}
			}
			e.Topology[corev1.LabelHostname] = *e.NodeName
		}
	},
	func(s *resourcev1.ResourceSliceSpec, c randfill.Continue) {
		if c.FillNoCustom(s); s.NodeName != nil {
			*s.NodeName = "n" + *s.NodeName
		}
		if s.AllNodes != nil {
			*s.AllNodes = true
		}
	},
	func(s *rbacv1.Subject, c randfill.Continue) {
		s.Name, s.Namespace = c.String(0), c.String(0)
		if s.Kind = []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}[c.Intn(3)]; s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = rbacv1.GroupName
		}
	},
	func(s *rbacv1alpha1.Subject, c randfill.Continue) {
		s.Name, s.Namespace = c.String(0), c.String(0)
		s.Kind = []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}[c.Intn(3)]
	},
}
