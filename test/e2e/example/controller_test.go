package example

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// labelTeam gives a config map the label team, with the name of its namespace.
func labelTeam(c client.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		m := &corev1.ConfigMap{}
		if err := c.Get(ctx, req.NamespacedName, m); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		before := m.DeepCopy()
		metav1.SetMetaDataLabel(&m.ObjectMeta, "team", m.Namespace)
		return reconcile.Result{}, c.Patch(ctx, m, client.MergeFrom(before))
	}
}

func TestConfigMapsGetTheLabelOfTheirTeam(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS names no directory with etcd, and svc as kube-apiserver")
	}
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	}()

	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(labelTeam(manager.GetClient()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	defer func() { // before the servers stop
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}}
	if err := manager.GetClient().Create(ctx, m); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := manager.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(m), m)
		return m.Labels["team"] == "default", err
	})
	if err != nil {
		t.Errorf("the labels are %v: %v", m.Labels, err)
	}
}
