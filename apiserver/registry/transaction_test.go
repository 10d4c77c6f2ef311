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
	services, ips := newServices(t)
	ctx := request.WithNamespace(t.Context(), "default")
	newService := func(name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
				InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
				Ports:                 []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
			},
		}
	}
	create := func(s *corev1.Service, validate rest.ValidateObjectFunc, dryRun ...string) (*corev1.Service, error) {
		defaulted(services, s)
		obj, err := services.Create(ctx, s, validate, &metav1.CreateOptions{DryRun: dryRun})
		if err != nil {
			return nil, err
		}
		return obj.(*corev1.Service), nil
	}
	held := func(want int) {
		t.Helper()
		got, err := ips.Held(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != want {
			t.Fatalf("reservations are %v, want %d", got, want)
		}
	}

	a, err := create(newService("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Spec.ClusterIP == "" || len(a.Spec.ClusterIPs) != 1 || len(a.Spec.IPFamilies) != 1 {
		t.Fatalf("the service was stored without an address: %+v", a.Spec)
	}
	held(1)

	if _, err := create(newService("a"), nil); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("a second service of the name: %v", err)
	}
	held(1)

	if _, err := create(newService("b"), nil, metav1.DryRunAll); err != nil {
		t.Fatal(err)
	}
	held(1)

	denied := errors.New("denied by admission")
	if _, err := create(newService("b"), func(context.Context, runtime.Object) error { return denied }); !errors.Is(err, denied) {
		t.Fatalf("denied by admission: %v", err)
	}
	held(1)

	invalid := newService("b")
	invalid.Spec.Ports = nil
	if _, err := create(invalid, nil); !apierrors.IsInvalid(err) {
		t.Fatalf("an invalid service: %v", err)
	}
	held(1)

	same := newService("b")
	same.Spec.ClusterIP = a.Spec.ClusterIP
	if _, err := create(same, nil); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided IP is already allocated") {
		t.Fatalf("a service with another's address: %v", err)
	}
	held(1)

	b := newService("b")
	b.Spec.ClusterIP = map[string]string{"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.1"}[a.Spec.ClusterIP]
	if b, err = create(b, nil); err != nil {
		t.Fatal(err)
	}
	held(2)

	// A PUT of what was created, without what the server added.
	again := newService("b")
	defaulted(services, again)
	obj, _, err := services.Update(ctx, "b", rest.DefaultUpdatedObjectInfo(again), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*corev1.Service); got.Spec.ClusterIP != b.Spec.ClusterIP {
		t.Fatalf("the address changed from %s to %q", b.Spec.ClusterIP, got.Spec.ClusterIP)
	}
	held(2)

	external := newService("b")
	external.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com", SessionAffinity: corev1.ServiceAffinityNone}
	stale := external.DeepCopy()
	stale.ResourceVersion = b.ResourceVersion + "1"
	if _, _, err := services.Update(ctx, "b", rest.DefaultUpdatedObjectInfo(stale), nil, nil, false, &metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("a stale update: %v", err)
	}
	held(2)
	if _, _, err := services.Update(ctx, "b", rest.DefaultUpdatedObjectInfo(external), nil, nil, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	held(1)

	if _, _, err := services.Delete(ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	held(0)
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
