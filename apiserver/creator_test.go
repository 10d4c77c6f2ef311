package apiserver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/apis/rbac"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/bootstrap"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/registry/registrytest"
	"svc.dev/svc/apiserver/release"
)

// TestTheServerCreatesItsRolesAsRequestsWould writes the default roles and bindings by
// requests and, at another server, without: what is stored is the same, managed fields
// included.
func TestTheServerCreatesItsRolesAsRequestsWould(t *testing.T) {
	byRequests, client := newRoleServer(t)
	ensureRoles(t, client, func(ctx context.Context, obj runtime.Object) error { return createRole(ctx, client, obj) })
	direct, own := newRoleServer(t)
	creator := direct.Registry.NewCreator(direct.Scheme)
	create := func(ctx context.Context, obj runtime.Object) error {
		return creator.Create(ctx, inprocess.UserAgent, obj)
	}
	ensureRoles(t, own, create)

	want, got := storedRoles(t, byRequests), storedRoles(t, direct)
	if len(want) < 100 {
		t.Fatalf("there are %d roles and bindings only", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by requests (-) and without (+): %s", diff)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}
	if err := create(t.Context(), role); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second role of a name: %v", err)
	}
	role = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}}}}
	if err := create(t.Context(), role); !apierrors.IsInvalid(err) {
		t.Errorf("a rule without verbs: %v", err)
	}
	if err := create(t.Context(), &rbacv1.ClusterRoleList{}); err == nil {
		t.Error("a list is created")
	}
}

// newRoleServer returns a server of roles, and a client on its internal view.
func newRoleServer(t *testing.T) (*registrytest.Stack, kubernetes.Interface) {
	t.Helper()
	s := registrytest.Start(t, rbac.Kinds()...)
	authorizer, err := authorization.New(authorization.Config{})
	if err != nil {
		t.Fatal(err)
	}
	internal, err := newInternalView(s.Scheme, s.Registry, authorizer, layers{utilfeature.DefaultFeatureGate})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(inprocess.ClientConfig(internal))
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

func ensureRoles(t *testing.T, client kubernetes.Interface, create bootstrap.Create) {
	t.Helper()
	if err := bootstrap.RolesStep(client, create, func(context.Context, []authorization.DefaultRole) {}, release.Newest, func(string) bool { return true }).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func createRole(ctx context.Context, client kubernetes.Interface, obj runtime.Object) error {
	api, options := client.RbacV1(), metav1.CreateOptions{}
	var err error
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		_, err = api.ClusterRoles().Create(ctx, obj, options)
	case *rbacv1.ClusterRoleBinding:
		_, err = api.ClusterRoleBindings().Create(ctx, obj, options)
	case *rbacv1.Role:
		_, err = api.Roles(obj.Namespace).Create(ctx, obj, options)
	case *rbacv1.RoleBinding:
		_, err = api.RoleBindings(obj.Namespace).Create(ctx, obj, options)
	default:
		err = fmt.Errorf("unexpected type %T", obj)
	}
	return err
}

// storedRoles returns the roles and bindings by resource, namespace and name, without what
// differs from server to server. It fails the test if that is missing.
func storedRoles(t *testing.T, s *registrytest.Stack) map[string]runtime.Object {
	t.Helper()
	stored := map[string]runtime.Object{}
	for _, kind := range s.Kinds {
		objects, err := s.Env.Objects(kind.Resource()).List(t.Context(), "", labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range objects {
			obj = obj.DeepCopyObject()
			m, err := meta.Accessor(obj)
			if err != nil {
				t.Fatal(err)
			}
			managed := m.GetManagedFields()
			if m.GetUID() == "" || m.GetResourceVersion() == "" || time.Since(m.GetCreationTimestamp().Time) > time.Hour || len(managed) != 1 || managed[0].Time.IsZero() {
				t.Errorf("%s %s has the metadata %v", kind.Name, m.GetName(), obj)
			}
			m.SetUID("")
			m.SetResourceVersion("")
			m.SetCreationTimestamp(metav1.Time{})
			managed[0].Time = nil
			stored[kind.Name+" "+m.GetNamespace()+"/"+m.GetName()] = obj
		}
	}
	return stored
}
