package bootstrap

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

func TestTheSecondPassOfTheStepsWritesNothing(t *testing.T) {
	client := fake.NewClientset()
	steps := Steps(Config{
		Client:    client,
		Clock:     clock.RealClock{},
		Service:   Service{ClusterIP: netip.MustParseAddr("10.0.0.1"), Port: 443, TargetPort: 6443},
		Advertise: netip.MustParseAddrPort("192.0.2.10:6443"),
	})
	for _, step := range steps {
		if err := step.Ensure(t.Context()); err != nil {
			t.Errorf("%s: %v", step.Name, err)
		}
	}
	if len(writes(client)) == 0 {
		t.Error("nothing was written")
	}
	client.ClearActions()
	for _, step := range steps {
		if err := step.Ensure(t.Context()); err != nil {
			t.Errorf("%s: %v", step.Name, err)
		}
	}
	if again := writes(client); len(again) != 0 {
		t.Errorf("the second pass wrote %v", again)
	}
}

func TestLoopbackIsNotPublished(t *testing.T) {
	for address, want := range map[string]int{"127.0.0.1:6443": 5, "[::1]:6443": 5, "0.0.0.0:6443": 5, "192.0.2.10:6443": 6} {
		if got := len(Steps(Config{Client: fake.NewClientset(), Clock: clock.RealClock{}, Advertise: netip.MustParseAddrPort(address)})); got != want {
			t.Errorf("%s: %d steps, want %d", address, got, want)
		}
	}
	if got := len(Steps(Config{Client: fake.NewClientset(), Clock: clock.RealClock{}})); got != 5 {
		t.Errorf("no address: %d steps, want 5", got)
	}
}

func TestNamespacesThatExistStayAsTheyAre(t *testing.T) {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"mine": "yes"}}})
	if err := EnsureNamespaces(t.Context(), client.CoreV1(), SystemNamespaces()...); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
		if ns.Name == "default" && ns.Labels["mine"] != "yes" {
			t.Error("the default namespace was changed")
		}
	}
	slices.Sort(names)
	if want := []string{"default", "kube-node-lease", "kube-public", "kube-system"}; !slices.Equal(names, want) {
		t.Errorf("namespaces = %v, want %v", names, want)
	}
}

func TestANamespaceThatAnotherServerCreatesFirstIsNoError(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(corev1.Resource("namespaces"), "default")
	})
	if err := EnsureNamespaces(t.Context(), client.CoreV1(), "default"); err != nil {
		t.Error(err)
	}
}

func TestAnErrorNamesTheObject(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	err := EnsureNamespaces(t.Context(), client.CoreV1(), "default")
	if err == nil || err.Error() != "ensure namespace default: context deadline exceeded" {
		t.Errorf("error = %v", err)
	}
}

func TestTheServiceIsCreatedOnceAndNotChanged(t *testing.T) {
	client := fake.NewClientset()
	first := Service{ClusterIP: FirstAddress(netip.MustParsePrefix("10.96.0.7/12")), Port: 443, TargetPort: 6443}
	if err := EnsureService(t.Context(), client.CoreV1(), first); err != nil {
		t.Fatal(err)
	}
	second := first
	second.TargetPort, second.NodePort = 7443, 30443
	if err := EnsureService(t.Context(), client.CoreV1(), second); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.ClusterIP != "10.96.0.1" || got.Spec.Type != corev1.ServiceTypeClusterIP || got.Spec.Ports[0].TargetPort.IntValue() != 6443 {
		t.Errorf("spec = %+v", got.Spec)
	}
}

func TestTheServiceMayHaveANodePort(t *testing.T) {
	client := fake.NewClientset()
	if err := EnsureService(t.Context(), client.CoreV1(), Service{ClusterIP: netip.MustParseAddr("fd00::1"), Port: 443, TargetPort: 6443, NodePort: 30443}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Type != corev1.ServiceTypeNodePort || got.Spec.Ports[0].NodePort != 30443 {
		t.Errorf("spec = %+v", got.Spec)
	}
}

// writes returns the client's actions that write.
func writes(client *fake.Clientset) []string {
	var result []string
	for _, a := range client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			result = append(result, a.GetVerb()+" "+a.GetResource().Resource)
		}
	}
	return result
}
