package controllers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// system is an API server with its controllers.
type system struct {
	name     string
	client   dynamic.Interface
	typed    kubernetes.Interface
	recorder *recorder
	metrics  *metrics
}

// kind is where the objects of a kind are.
type kind struct {
	resource schema.GroupVersionResource
	cluster  bool
}

// kinds are those that are compared.
var kinds = map[string]kind{
	"Pod": in("", "v1", "pods"), "ReplicationController": in("", "v1", "replicationcontrollers"), "Service": in("", "v1", "services"),
	"Endpoints": in("", "v1", "endpoints"), "PersistentVolumeClaim": in("", "v1", "persistentvolumeclaims"), "ConfigMap": in("", "v1", "configmaps"),
	"Secret": in("", "v1", "secrets"), "ServiceAccount": in("", "v1", "serviceaccounts"), "ResourceQuota": in("", "v1", "resourcequotas"), "Event": in("", "v1", "events"),
	"Deployment": in("apps", "v1", "deployments"), "ReplicaSet": in("apps", "v1", "replicasets"), "StatefulSet": in("apps", "v1", "statefulsets"),
	"DaemonSet": in("apps", "v1", "daemonsets"), "ControllerRevision": in("apps", "v1", "controllerrevisions"),
	"Job": in("batch", "v1", "jobs"), "CronJob": in("batch", "v1", "cronjobs"), "HorizontalPodAutoscaler": in("autoscaling", "v2", "horizontalpodautoscalers"),
	"PodDisruptionBudget": in("policy", "v1", "poddisruptionbudgets"), "EndpointSlice": in("discovery.k8s.io", "v1", "endpointslices"),
	"Node": clusterWide("", "v1", "nodes"), "PersistentVolume": clusterWide("", "v1", "persistentvolumes"), "Namespace": clusterWide("", "v1", "namespaces"),
	"StorageClass": clusterWide("storage.k8s.io", "v1", "storageclasses"), "VolumeAttachment": clusterWide("storage.k8s.io", "v1", "volumeattachments"),
	"CSIDriver":                      clusterWide("storage.k8s.io", "v1", "csidrivers"),
	"ClusterRole":                    clusterWide("rbac.authorization.k8s.io", "v1", "clusterroles"),
	"ResourceClaim":                  in("resource.k8s.io", "v1", "resourceclaims"),
	"ResourceSlice":                  clusterWide("resource.k8s.io", "v1", "resourceslices"),
	"DeviceTaintRule":                clusterWide("resource.k8s.io", "v1beta2", "devicetaintrules"),
	"ResourcePoolStatusRequest":      clusterWide("resource.k8s.io", "v1alpha3", "resourcepoolstatusrequests"),
	"StorageVersionMigration":        clusterWide("storagemigration.k8s.io", "v1beta1", "storageversionmigrations"),
	"LimitRange":                     in("", "v1", "limitranges"),
	"ValidatingWebhookConfiguration": clusterWide("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
	"CertificateSigningRequest":      clusterWide("certificates.k8s.io", "v1", "certificatesigningrequests"),
}

func in(group, version, resource string) kind {
	return kind{resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
}

func clusterWide(group, version, resource string) kind {
	k := in(group, version, resource)
	k.cluster = true
	return k
}

// commonNode is a node of both systems that all scenarios use.
const commonNode = "node"

// flags are those of both controller managers: what would take long is made short, and
// silent nodes are not noticed.
var flags = []string{
	"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h", "--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-initial-readiness-delay=1ms",
	"--concurrent-daemonset-syncs=10", "--horizontal-pod-autoscaler-cpu-initialization-period=1ms", "--horizontal-pod-autoscaler-downscale-stabilization=1s",
}

// newer enables kinds and controllers that are off by default in 1.36.
const newer = "--feature-gates=DRADeviceTaintRules=true,DRAResourcePoolStatus=true,StorageVersionMigrator=true,HPAScaleToZero=true,PersistentVolumeClaimUnusedSinceTime=true"

var newerKinds = []string{newer, "--runtime-config=resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3/resourcepoolstatusrequests=true,storagemigration.k8s.io/v1beta1=true"}

// start starts both systems, without schedulers: the scripts bind the pods.
func start(t *testing.T) (svc, kube *system) {
	t.Helper()
	for _, program := range []string{"kube-apiserver", "kube-controller-manager", "etcd"} {
		if _, err := launch.Peer(program); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	k, err := launch.UpKube(t.Context(), dir, append([]string{
		launch.NoServiceAccounts, "--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
	}, newerKinds...)...)
	t.Cleanup(k.Stop)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := k.StartController("kube-controller-manager", append([]string{
		"--service-account-private-key-file=" + filepath.Join(dir, "service-account.key"), "--root-ca-file=" + k.Cluster().Authority.File,
		"--kube-api-qps=10000", "--kube-api-burst=10000", "--pvclaimbinder-sync-period=1s", "--concurrent-replicaset-syncs=10", "--concurrent-deployment-syncs=10", newer,
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keepLog(t, "kube-controller-manager", manager) })
	s, err := launch.Up(t.Context(), t.TempDir(), append([]string{
		"--release=1.36", "--service-cluster-ip-range=10.96.0.0/16", launch.NoServiceAccounts, "--controllers=*,-scheduler,-localpathprovisioner,-hostloadbalancer,-nodeipam",
		"--enable-priority-and-fairness=false",
	}, append(newerKinds, flags...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keepLog(t, "svc", s.Process) })
	return newSystem(t, "svc", s.Config), newSystem(t, "kube", k.Config)
}

// keepLog ends a program, and writes what it has logged into the directory $LOGS, if set.
func keepLog(t *testing.T, name string, p *launch.Process) {
	p.Kill()
	if dir := os.Getenv("LOGS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".log"), []byte(p.Output()), 0o600); err != nil {
			t.Error(err)
		}
	}
}

func newSystem(t *testing.T, name string, config *rest.Config) *system {
	t.Helper()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	s := &system{name: name}
	var err error
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.typed, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all []schema.GroupVersionResource
	for _, k := range kinds {
		all = append(all, k.resource)
	}
	if s.recorder, err = startRecorder(ctx, s.client, all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		s.recorder.running.Wait()
	})
	if err := s.addNode(t.Context(), commonNode); err != nil {
		t.Fatal(err)
	}
	s.serveMetrics(t)
	return s
}

func (s *system) addNode(ctx context.Context, name string) error {
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}}
	nodes := s.client.Resource(kinds["Node"].resource)
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	amounts := `{"cpu": "1k", "memory": "1Ti", "pods": "10k", "ephemeral-storage": "1Ti"}`
	status := fmt.Appendf(nil, `{"status": {"capacity": %[1]s, "allocatable": %[1]s, "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}}`, amounts)
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return nil
}
