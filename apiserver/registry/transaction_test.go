package registry

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/reservation"
	"svc.dev/svc/apiserver/storage"
)

// newServices makes the storage of services on an etcd of its own.
func newServices(t *testing.T) (*mainREST, resource.Reservations) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	backend, err := storage.Open(storage.Config{Servers: server.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	kinds := apis.Kinds()
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		t.Fatal(err)
	}
	all := reservation.New(backend.Client().KV, backend.Prefix(), clock.RealClock{})
	codec, versioner := storage.KindCodec(scheme, kinds)
	kinds = slices.DeleteFunc(kinds, func(k *resource.Kind) bool { return k.Reservations == nil })
	registry := New()
	t.Cleanup(registry.Destroy)
	err = registry.Install(kinds, scheme, backend.RESTOptions(codec, versioner), &resource.Env{
		Objects:      registry.Objects,
		Reservations: all.Pool,
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")},
		NodePorts:    resource.PortRange{From: 30000, To: 30009},
	})
	if err != nil {
		t.Fatal(err)
	}
	return registry.Resources[0].main, all.Pool("serviceips")
}

func TestAnAddressIsReservedExactlyWhileItsServiceExists(t *testing.T) {
	s := newServiceStore(t)
	a, err := s.create(newService("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Spec.ClusterIP == "" || len(a.Spec.ClusterIPs) != 1 || len(a.Spec.IPFamilies) != 1 {
		t.Fatalf("the service was stored without an address: %+v", a.Spec)
	}
	s.expectHeld(1)

	s.failToCreate(a)

	b := newService("b")
	b.Spec.ClusterIP = map[string]string{"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.1"}[a.Spec.ClusterIP]
	if b, err = s.create(b, nil); err != nil {
		t.Fatal(err)
	}
	s.expectHeld(2)

	// A PUT of what was created, without what the server added.
	again := newService("b")
	defaulted(s.services, again)
	obj, _, err := s.services.Update(s.ctx, "b", rest.DefaultUpdatedObjectInfo(again), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*corev1.Service); got.Spec.ClusterIP != b.Spec.ClusterIP {
		t.Fatalf("the address changed from %s to %q", b.Spec.ClusterIP, got.Spec.ClusterIP)
	}
	s.expectHeld(2)

	s.becomeExternal(b)
	if _, _, err := s.services.Delete(s.ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.expectHeld(0)
}

// serviceStore is the storage of services of the namespace default, with their addresses.
type serviceStore struct {
	*testing.T
	ctx      context.Context
	services *mainREST
	ips      resource.Reservations
}

func newServiceStore(t *testing.T) *serviceStore {
	t.Helper()
	services, ips := newServices(t)
	return &serviceStore{t, request.WithNamespace(t.Context(), "default"), services, ips}
}

func newService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
			Ports:                 []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func (s *serviceStore) create(svc *corev1.Service, validate rest.ValidateObjectFunc, dryRun ...string) (*corev1.Service, error) {
	defaulted(s.services, svc)
	obj, err := s.services.Create(s.ctx, svc, validate, &metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Service), nil
}

// expectHeld fails the test unless want addresses are reserved.
func (s *serviceStore) expectHeld(want int) {
	s.Helper()
	got, err := s.ips.Held(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	if len(got) != want {
		s.Fatalf("reservations are %v, want %d", got, want)
	}
}

// failToCreate creates services that are not stored for all reasons that there are: none of
// them keeps an address. The service a exists.
func (s *serviceStore) failToCreate(a *corev1.Service) {
	s.Helper()
	if _, err := s.create(newService("a"), nil); !apierrors.IsAlreadyExists(err) {
		s.Fatalf("a second service of the name: %v", err)
	}
	s.expectHeld(1)

	if _, err := s.create(newService("b"), nil, metav1.DryRunAll); err != nil {
		s.Fatal(err)
	}
	s.expectHeld(1)

	denied := errors.New("denied by admission")
	if _, err := s.create(newService("b"), func(context.Context, runtime.Object) error { return denied }); !errors.Is(err, denied) {
		s.Fatalf("denied by admission: %v", err)
	}
	s.expectHeld(1)

	invalid := newService("b")
	invalid.Spec.Ports = nil
	if _, err := s.create(invalid, nil); !apierrors.IsInvalid(err) {
		s.Fatalf("an invalid service: %v", err)
	}
	s.expectHeld(1)

	same := newService("b")
	same.Spec.ClusterIP = a.Spec.ClusterIP
	if _, err := s.create(same, nil); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided IP is already allocated") {
		s.Fatalf("a service with another's address: %v", err)
	}
	s.expectHeld(1)
}

// becomeExternal updates the service to one of an external name, which gives its address up.
func (s *serviceStore) becomeExternal(b *corev1.Service) {
	s.Helper()
	external := newService("b")
	external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", SessionAffinity: corev1.ServiceAffinityNone}
	stale := external.DeepCopy()
	stale.ResourceVersion = b.ResourceVersion + "1"
	if _, _, err := s.services.Update(s.ctx, "b", rest.DefaultUpdatedObjectInfo(stale), nil, nil, false, &metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		s.Fatalf("a stale update: %v", err)
	}
	s.expectHeld(2)
	if _, _, err := s.services.Update(s.ctx, "b", rest.DefaultUpdatedObjectInfo(external), nil, nil, false, &metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.expectHeld(1)
}

func defaulted(services *mainREST, obj runtime.Object) { services.kind.Default(obj) }

func TestATransactionIsFinishedOnlyWithACertainOutcome(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "a", errors.New("changed"))
	for _, test := range []struct {
		rule    string
		writing bool
		err     error
		want    string
	}{
		{"a write that succeeded", true, nil, "true"},
		{"a write that was refused", true, conflict, "false"},
		{"a write whose answer was lost", true, apierrors.NewTimeoutError("etcd", 1), ""},
		{"a write with an error of etcd's", true, errors.New("etcdserver: request timed out"), ""},
		{"a write that was not sent to etcd", true, storage.RefusedError{Reason: apierrors.NewServiceUnavailable("the data is being read")}, "false"},
		{"an admission plugin that failed before the write", false, apierrors.NewInternalError(errors.New("webhook")), "false"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			finished := ""
			tx := &transaction{}
			if err := tx.begin(func() (func(bool), error) {
				return func(ok bool) { finished += map[bool]string{true: "true", false: "false"}[ok] }, nil
			}); err != nil {
				t.Fatal(err)
			}
			tx.writing = test.writing
			tx.conclude(test.err)
			if finished != test.want {
				t.Errorf("the hook was finished with %q, want %q", finished, test.want)
			}
		})
	}
}

func TestATransactionEndsAnAttemptWhenTheNextBegins(t *testing.T) {
	var finished []string
	tx := &transaction{}
	for _, name := range []string{"first", "second"} {
		if err := tx.begin(func() (func(bool), error) {
			return func(ok bool) {
				finished = append(finished, name+map[bool]string{true: " written", false: " not written"}[ok])
			}, nil
		}); err != nil {
			t.Fatal(err)
		}
		tx.writing = true
	}
	tx.conclude(nil)
	if got := strings.Join(finished, ", "); got != "first not written, second written" {
		t.Errorf("finished: %s", got)
	}
}
