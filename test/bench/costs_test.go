package main

import "testing"

func TestFunctionsBelongToAController(t *testing.T) {
	for _, test := range []struct {
		name, want string
		functions  []string
	}{
		{"svc's", "replicaset", []string{"runtime.mallocgc", "svc.dev/svc/controllers/pods.Active", "svc.dev/svc/controllers/replicaset.(*reconciler).Reconcile"}},
		{"svc's package in a package", "deployment", []string{"svc.dev/svc/controllers/deployment/rollout.Plan"}},
		{"Kubernetes'", "daemonset", []string{"k8s.io/kubernetes/pkg/controller/util/node.IsReady", "k8s.io/kubernetes/pkg/controller/daemon.(*DaemonSetsController).manage"}},
		{"Kubernetes' controllers of volumes", "persistentvolumebinder", []string{"k8s.io/kubernetes/pkg/controller/volume/persistentvolume.(*PersistentVolumeController).syncClaim"}},
		{"Kubernetes' package of all controllers", "job", []string{"k8s.io/kubernetes/pkg/controller.(*RealPodControl).CreatePods", "k8s.io/kubernetes/pkg/controller/job.(*Controller).syncJob"}},
		{"kube-scheduler", "scheduler", []string{"k8s.io/kubernetes/pkg/scheduler/framework.(*NodeInfo).Update"}},
		{"a watch", "caches and watches", []string{"encoding/json.Unmarshal", "k8s.io/client-go/tools/cache.(*Reflector).watch"}},
		{"a handler in a watch", "garbagecollector", []string{"svc.dev/svc/controllers/garbagecollector.(*collector).observe", "k8s.io/client-go/tools/cache.(*processorListener).run"}},
		{"none", "the rest", []string{"runtime.schedule"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := owner(test.functions); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
