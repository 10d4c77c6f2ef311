package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// svcManager is svc's controller manager with an API server of svc, which is not
// measured.
type svcManager struct{ api *svcSystem }

func (m *svcManager) Name() string                            { return "svc" }
func (m *svcManager) Binaries() []string                      { return m.api.Binaries() }
func (m *svcManager) URL() string                             { return m.api.URL() }
func (m *svcManager) Config(dir string) (*rest.Config, error) { return m.api.Config(dir) }

func (m *svcManager) Processes(dir string) ([]process, error) {
	processes, err := apiServer(m.api, dir)
	return append(processes, process{name: "controller-manager", path: m.api.binary, args: []string{
		"controller-manager", "--svcconfig", filepath.Join(dir, "controller-manager.svcconfig"), "--secure-port=0",
	}}), err
}

// kubeManagers are kube-controller-manager and kube-scheduler with an API server
// of svc, as administrators. They run only the controllers that svc has, too, and
// without client-side rate limits: the default of 20 requests a second would make
// kube-controller-manager very slow.
type kubeManagers struct {
	api                *svcSystem
	manager, scheduler string // binaries
}

func (m *kubeManagers) Name() string                            { return "kube" }
func (m *kubeManagers) Binaries() []string                      { return []string{m.manager, m.scheduler} }
func (m *kubeManagers) URL() string                             { return m.api.URL() }
func (m *kubeManagers) Config(dir string) (*rest.Config, error) { return m.api.Config(dir) }

// kubeControllers returns kube-controller-manager's names of svc's controllers.
func kubeControllers() string {
	return strings.Join([]string{
		"namespace-controller", "garbage-collector-controller", "pod-garbage-collector-controller",
		"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
		"node-lifecycle-controller", "taint-eviction-controller", "node-ipam-controller",
		"replicaset-controller", "replicationcontroller-controller", "deployment-controller", "job-controller", "ttl-after-finished-controller",
		"endpointslice-controller", "endpoints-controller", "endpointslice-mirroring-controller", "disruption-controller",
		"serviceaccount-controller", "resourcequota-controller",
		"statefulset-controller", "daemonset-controller", "cronjob-controller", "horizontal-pod-autoscaler-controller",
		"persistentvolume-binder-controller", "persistentvolume-attach-detach-controller", "persistentvolume-expander-controller", "ephemeral-volume-controller",
		"certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller", "clusterrole-aggregation-controller", "ttl-controller",
		"token-cleaner-controller", "bootstrap-signer-controller", "legacy-serviceaccount-token-cleaner-controller", "validatingadmissionpolicy-status-controller",
	}, ",")
}

func (m *kubeManagers) Processes(dir string) ([]process, error) {
	processes, err := apiServer(m.api, dir)
	kubeconfig := filepath.Join(dir, "admin.svcconfig")
	shared := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=0", "--kube-api-qps=10000", "--kube-api-burst=10000",
		"--kube-api-content-type=" + protobufType,
	}
	return append(processes,
		process{name: "kube-controller-manager", path: m.manager, args: append([]string{"--controllers=" + kubeControllers()}, shared...)},
		process{name: "kube-scheduler", path: m.scheduler, args: shared, prepare: m.serveClaims(dir)},
	), err
}

// apiServer returns the process of the managers' API server.
func apiServer(api *svcSystem, dir string) ([]process, error) {
	processes, err := api.Processes(dir)
	for i := range processes {
		processes[i].aside = true
		processes[i].listens = net.JoinHostPort("127.0.0.1", api.port)
	}
	return processes, err
}

// serveClaims makes the API server serve the kinds of dynamic resource
// allocation, as custom resources: kube-scheduler 1.36 waits for them, and the
// release that svc serves does not have them.
func (m *kubeManagers) serveClaims(dir string) func(context.Context) error {
	return func(ctx context.Context) error {
		config, err := m.Config(dir)
		if err != nil {
			return err
		}
		clients, err := dial(ctx, config, 1)
		if err != nil {
			return err
		}
		defer closeAll(clients)
		for _, r := range []struct{ plural, kind, scope string }{
			{"deviceclasses", "DeviceClass", "Cluster"},
			{"resourceslices", "ResourceSlice", "Cluster"},
			{"resourceclaims", "ResourceClaim", "Namespaced"},
		} {
			body := fmt.Appendf(nil, `{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": {"name": "%[1]s.resource.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for kube-scheduler"}},
				"spec": {
					"group": "resource.k8s.io", "scope": "%[3]s", "names": {"plural": "%[1]s", "kind": "%[2]s"},
					"versions": [{"name": "v1", "served": true, "storage": true,
						"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
				}
			}`, r.plural, r.kind, r.scope)
			err := clients[0].do(ctx, request{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: body})
			if status := (*statusError)(nil); err != nil && !(errors.As(err, &status) && status.code == http.StatusConflict) {
				return err
			}
		}
		return nil
	}
}
