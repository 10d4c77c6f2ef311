package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hostRoles are those of every host.
var hostRoles = sets.New("ClusterRole/system:auth-delegator", "ClusterRole/system:node-bootstrapper", "Role/extension-apiserver-authentication-reader")

// has reports whether there is an object of the type with the name.
func has[T client.Object](m *manifests, namespace, name string) bool {
	return slices.ContainsFunc(objects[T](m), func(o T) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}

// secrets returns the names of the Secrets that exist once all runs: those that the
// flags of a server name, and those that the user or cert-manager makes.
func (m *manifests) secrets() sets.Set[string] {
	names := sets.New(m.secretNames...)
	for _, w := range workloads(m) {
		for _, arg := range w.template.Spec.Containers[0].Args {
			flag, value, _ := strings.Cut(arg, "=")
			if flag == "--etcd-secret" || flag == "--serving-secret" {
				names.Insert(strings.TrimPrefix(value, "$(NAMESPACE)/"))
			}
		}
	}
	return names
}

func volumesAndAccountsOfPodsExist(t *testing.T, m *manifests) {
	secrets := m.secrets()
	for _, w := range workloads(m) {
		spec := w.template.Spec
		volumes := sets.New[string]()
		for _, v := range spec.Volumes {
			volumes.Insert(v.Name)
			var names []string
			if v.Secret != nil {
				names = append(names, v.Secret.SecretName)
			}
			if v.Projected != nil {
				for _, source := range v.Projected.Sources {
					names = append(names, source.Secret.Name)
				}
			}
			for _, name := range names {
				if !secrets.Has(name) {
					t.Errorf("%s: no Secret %s, only %v", w.GetName(), name, sets.List(secrets))
				}
			}
			if v.ConfigMap != nil && !has[*corev1.ConfigMap](m, w.GetNamespace(), v.ConfigMap.Name) {
				t.Errorf("%s: no ConfigMap %s", w.GetName(), v.ConfigMap.Name)
			}
		}
		for _, mount := range spec.Containers[0].VolumeMounts {
			if !volumes.Has(mount.Name) {
				t.Errorf("%s: no volume %s", w.GetName(), mount.Name)
			}
		}
		if spec.ServiceAccountName != "" && !has[*corev1.ServiceAccount](m, w.GetNamespace(), spec.ServiceAccountName) {
			t.Errorf("%s: no ServiceAccount %s", w.GetName(), spec.ServiceAccountName)
		}
		if class := spec.PriorityClassName; class != "" && !has[*schedulingv1.PriorityClass](m, "", class) {
			t.Errorf("%s: no PriorityClass %s", w.GetName(), class)
		}
	}
	for _, s := range objects[*appsv1.StatefulSet](m) {
		if !has[*corev1.Service](m, s.Namespace, s.Spec.ServiceName) {
			t.Errorf("%s: no Service %s", s.Name, s.Spec.ServiceName)
		}
	}
}

// selected returns the workload that a selector selects. It must be one.
func (m *manifests) selected(t *testing.T, by client.Object, selector map[string]string) corev1.PodSpec {
	t.Helper()
	var found []workload
	for _, w := range workloads(m) {
		if w.GetNamespace() == by.GetNamespace() && len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(w.template.Labels)) {
			found = append(found, w)
		}
	}
	if len(found) != 1 {
		t.Errorf("%T %s selects %d workloads by %v, want one", by, by.GetName(), len(found), selector)
		return corev1.PodSpec{}
	}
	return found[0].template.Spec
}

func hasPort(spec corev1.PodSpec, port intstr.IntOrString) bool {
	return slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			return port.Type == intstr.String && p.Name == port.StrVal || port.Type == intstr.Int && p.ContainerPort == port.IntVal
		})
	})
}

func selectorsAndPortsMeetOneWorkload(t *testing.T, m *manifests) {
	for _, w := range workloads(m) {
		if !labels.SelectorFromSet(w.selector).Matches(labels.Set(w.template.Labels)) {
			t.Errorf("%s does not select its own pods", w.GetName())
		}
		for _, c := range w.template.Spec.Containers {
			for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
				if probe == nil || !hasPort(w.template.Spec, probe.HTTPGet.Port) {
					t.Errorf("%s: the %s probe has no port", w.GetName(), name)
				}
			}
		}
	}
	for _, s := range objects[*corev1.Service](m) {
		spec := m.selected(t, s, s.Spec.Selector)
		for _, port := range s.Spec.Ports {
			if !hasPort(spec, port.TargetPort) {
				t.Errorf("Service %s: no port %v", s.Name, port.TargetPort)
			}
		}
	}
	for _, b := range objects[*policyv1.PodDisruptionBudget](m) {
		m.selected(t, b, b.Spec.Selector.MatchLabels)
	}
	for _, p := range objects[*networkingv1.NetworkPolicy](m) {
		spec := m.selected(t, p, p.Spec.PodSelector.MatchLabels)
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				if !hasPort(spec, *port.Port) {
					t.Errorf("NetworkPolicy %s: no port %v", p.Name, port.Port)
				}
			}
			for _, from := range rule.From {
				m.selected(t, p, from.PodSelector.MatchLabels)
			}
		}
	}
}

// machineRole is the role that administrators bind to the machines of a fleet.
const machineRole = "svc-machine"

func bindingsHaveARoleAndAnAccount(t *testing.T, m *manifests) {
	check := func(by client.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		known := hostRoles.Has(ref.Kind + "/" + ref.Name)
		if ref.Kind == "ClusterRole" {
			known = known || has[*rbacv1.ClusterRole](m, "", ref.Name)
		} else {
			known = known || has[*rbacv1.Role](m, by.GetNamespace(), ref.Name)
		}
		if !known {
			t.Errorf("%s: no %s %s", by.GetName(), ref.Kind, ref.Name)
		}
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && !has[*corev1.ServiceAccount](m, s.Namespace, s.Name) {
				t.Errorf("%s: no ServiceAccount %s/%s", by.GetName(), s.Namespace, s.Name)
			}
		}
	}
	for _, b := range objects[*rbacv1.ClusterRoleBinding](m) {
		check(b, b.RoleRef, b.Subjects)
	}
	for _, b := range objects[*rbacv1.RoleBinding](m) {
		check(b, b.RoleRef, b.Subjects)
	}
	bound := sets.New[string]()
	for _, b := range objects[*rbacv1.ClusterRoleBinding](m) {
		bound.Insert("ClusterRole/" + b.RoleRef.Name)
	}
	for _, b := range objects[*rbacv1.RoleBinding](m) {
		bound.Insert(b.RoleRef.Kind + "/" + b.RoleRef.Name)
	}
	for _, r := range objects[*rbacv1.ClusterRole](m) {
		if !bound.Has("ClusterRole/"+r.Name) && r.Name != machineRole {
			t.Errorf("no account has the ClusterRole %s", r.Name)
		}
	}
}

// leavesOutNoRoleAndNoBinding: make deploy deletes nothing, so that a fleet which exists would
// keep a right whose role or binding a component leaves out. It leaves them without rules or
// subjects instead.
func leavesOutNoRoleAndNoBinding(t *testing.T, all, m *manifests) {
	name := func(o client.Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }
	rendered := sets.New[string]()
	for _, o := range m.objects {
		rendered.Insert(name(o))
	}
	for _, o := range all.objects {
		switch o.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding:
			if !rendered.Has(name(o)) {
				t.Errorf("%s is left out", name(o))
			}
		}
	}
}

func TestCertManagerTakesTheRightsToWriteCertificates(t *testing.T) {
	for _, m := range []*manifests{render(t, overlay{"aggregated", []string{"cert-manager"}}), render(t, overlay{"aggregated", []string{"namespace-scoped", "cert-manager", "three-etcd"}})} {
		for _, r := range objects[*rbacv1.ClusterRole](m) {
			if r.Name == "svc-apiserver-registrar" && len(r.Rules) > 0 {
				t.Errorf("%s has the rules %v", r.Name, r.Rules)
			}
		}
		for _, r := range objects[*rbacv1.Role](m) {
			if r.Name == "svc-apiserver-certificates" && len(r.Rules) > 0 {
				t.Errorf("%s has the rules %v", r.Name, r.Rules)
			}
		}
	}
}

func aPIServicesNameTheServiceOfTheServers(t *testing.T, m *manifests) {
	for _, s := range objects[*apiregistrationv1.APIService](m) {
		to := s.Spec.Service
		if !has[*corev1.Service](m, to.Namespace, to.Name) {
			t.Errorf("%s: no Service %s/%s", s.Name, to.Namespace, to.Name)
		}
	}
}

// A user who removes the overlay removes every object with it, and finds each by its
// label.
func TestEveryObjectIsLabelled(t *testing.T) {
	for _, m := range []*manifests{render(t, overlay{"aggregated", nil}), render(t, overlay{"aggregated", []string{"three-etcd"}})} {
		for _, o := range m.objects {
			if len(o.GetLabels()) == 0 {
				t.Errorf("%T %s has no label", o, o.GetName())
			}
		}
	}
}
