package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"svc.dev/svc/test/simulate"
)

// Namespaces of the measures of workloads.
const (
	statefulNamespace   = "bench-stateful"
	daemonNamespace     = "bench-daemons"
	cronNamespace       = "bench-cron"
	autoscaledNamespace = "bench-autoscaled"
	claimNamespace      = "bench-claims"
	preemptNamespace    = "bench-preempt"
)

const (
	// statefulReplicas is the number of pods of each stateful set, one after another.
	statefulReplicas = 10
	// scaledReplicas is the number of pods that each autoscaler asks for.
	scaledReplicas = 5
	// preemptedNodes are filled with pods of low priority, fullNode on each.
	preemptedNodes, fullNode = 50, 10
	// machineHeartbeat is that of simulated machines in these measures.
	machineHeartbeat = 15 * time.Second
)

// stage is what a measure runs on: clients, machines that run pods at once, and a
// namespace.
type stage struct {
	clients  []*client
	machines *simulate.Nodes
	end      func() error
}

// stage prepares a measure with n machines. The end of the stage removes the namespace
// and the machines.
func (t *trial) stage(ctx context.Context, namespace string, n int, change func(*corev1.Node)) (*stage, error) {
	clients, err := t.clients(ctx, 16)
	if err != nil {
		return nil, err
	}
	config, err := t.config()
	if err != nil {
		closeAll(clients)
		return nil, err
	}
	machines, err := simulate.StartBeating(config, machineHeartbeat)
	if err != nil {
		closeAll(clients)
		return nil, err
	}
	s := &stage{clients: clients, machines: machines}
	name := func(i int) string { return fmt.Sprintf("%s-%d", namespace, i) }
	s.end = func() error {
		defer closeAll(clients)
		defer machines.Stop()
		if err := t.removeNamespace(ctx, clients[0], namespace); err != nil {
			return err
		}
		_, err := t.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, request{method: http.MethodDelete, path: "/api/v1/nodes/" + name(i)})
		})
		return err
	}
	_, err = t.load(ctx, clients, n, func(ctx context.Context, _ *client, i int) error { return machines.Add(ctx, name(i), change) })
	if err == nil {
		err = t.namespace(ctx, clients[0], namespace)
	}
	if err != nil {
		machines.Stop()
		closeAll(clients)
		return nil, err
	}
	return s, nil
}

// create creates n objects.
func (t *trial) create(ctx context.Context, s *stage, path string, n int, body func(i int) []byte) error {
	_, err := t.load(ctx, s.clients, n, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, request{method: http.MethodPost, path: path, body: body(i)})
	})
	return err
}

// items decodes a list.
func items[T any](ctx context.Context, c *client, path string) ([]T, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var list struct{ Items []T }
	err = json.NewDecoder(body).Decode(&list)
	return list.Items, err
}

// all returns a condition: that a list has n items, and each is so.
func all[T any](ctx context.Context, c *client, path string, n int, so func(*T) bool) func() (bool, error) {
	return func() (bool, error) {
		list, err := items[T](ctx, c, path)
		if err != nil || len(list) < n {
			return false, err
		}
		for i := range list {
			if !so(&list[i]) {
				return false, nil
			}
		}
		return true, nil
	}
}

// podTemplate is that of the workloads' pods.
func podTemplate(app string) string {
	return fmt.Sprintf(`{
		"metadata": {"labels": {"app": %q}},
		"spec": {"containers": [{"name": "main", "image": "registry.example.com/main:1", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}}]}
	}`, app)
}

// changeTemplate is a patch that rolls a workload's pods.
var changeTemplate = []byte(`{"spec":{"template":{"metadata":{"annotations":{"bench.svc.dev/revision":"2"}}}}}`)

// measureStateful starts stateful sets, whose pods start one after another, and rolls
// them.
func measureStateful(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, statefulNamespace, rolledNodes, nil)
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	const path = "/apis/apps/v1/namespaces/" + statefulNamespace + "/statefulsets"
	sets := t.sizes.Stateful / statefulReplicas
	type set struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			ObservedGeneration              int64
			ReadyReplicas, UpdatedReplicas  int
			CurrentRevision, UpdateRevision string
		}
	}
	ready := func(s *set) bool {
		return s.Status.ObservedGeneration == s.Metadata.Generation && s.Status.ReadyReplicas == statefulReplicas &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	}
	work, err := t.work(func() error {
		if err := t.create(ctx, s, path, sets, func(i int) []byte {
			app := fmt.Sprintf("db-%d", i)
			return fmt.Appendf(nil, `{"metadata": {"name": %[1]q}, "spec": {"replicas": %[2]d, "serviceName": "db", "selector": {"matchLabels": {"app": %[1]q}}, "template": %[3]s}}`,
				app, statefulReplicas, podTemplate(app))
		}); err != nil {
			return err
		}
		return until(ctx, all(ctx, s.clients[0], path, sets, ready))
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	t.recordWork("stateful pods started", sets*statefulReplicas, work)
	work, err = t.work(func() error {
		if _, err := t.load(ctx, s.clients, sets, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, request{method: http.MethodPatch, path: fmt.Sprintf("%s/db-%d", path, i), contentType: mergeType, body: changeTemplate})
		}); err != nil {
			return err
		}
		return until(ctx, all(ctx, s.clients[0], path, sets, ready))
	})
	if err != nil {
		return fmt.Errorf("roll: %w", err)
	}
	t.recordWork("stateful pods rolled", sets*statefulReplicas, work)
	return nil
}

// measureDaemons starts a daemon set on many nodes, and rolls it, a tenth of the nodes at
// a time.
func measureDaemons(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, daemonNamespace, t.sizes.Nodes, nil)
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	const path = "/apis/apps/v1/namespaces/" + daemonNamespace + "/daemonsets"
	type set struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			ObservedGeneration                      int64
			NumberAvailable, UpdatedNumberScheduled int
		}
	}
	ready := func(s *set) bool {
		return s.Status.ObservedGeneration == s.Metadata.Generation && s.Status.NumberAvailable == t.sizes.Nodes && s.Status.UpdatedNumberScheduled == t.sizes.Nodes
	}
	for _, f := range []struct {
		name    string
		request request
	}{
		{"daemon pods started", request{method: http.MethodPost, path: path, body: fmt.Appendf(nil, `{
			"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": {"rollingUpdate": {"maxUnavailable": "10%%"}}, "template": %s}
		}`, podTemplate("agent"))}},
		{"daemon pods rolled", request{method: http.MethodPatch, path: path + "/agent", contentType: mergeType, body: changeTemplate}},
	} {
		work, err := t.work(func() error {
			if err := s.clients[0].do(ctx, f.request); err != nil {
				return err
			}
			return until(ctx, all(ctx, s.clients[0], path, 1, ready))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		t.recordWork(f.name, t.sizes.Nodes, work)
	}
	return nil
}

// measureCronJobs lets many cron jobs fire at the same minute. The time is from the
// beginning of the minute until the last job has completed.
func measureCronJobs(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, cronNamespace, rolledNodes, nil)
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	const path = "/apis/batch/v1/namespaces/" + cronNamespace
	// They must all exist when the minute begins.
	if err := wait(ctx, untilMinuteHas(30*time.Second)); err != nil {
		return err
	}
	if err := t.create(ctx, s, path+"/cronjobs", t.sizes.CronJobs, func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "cron-%d"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {
			"metadata": {"annotations": {%q: "0"}},
			"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/main:1"}]}
		}}}}}`, i, simulate.ExitAnnotation)
	}); err != nil {
		return err
	}
	if err := wait(ctx, time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))); err != nil {
		return err
	}
	type job struct{ Status struct{ Succeeded int } }
	work, err := t.work(func() error {
		return until(ctx, all(ctx, s.clients[0], path+"/jobs", t.sizes.CronJobs, func(j *job) bool { return j.Status.Succeeded == 1 }))
	})
	if err != nil {
		return err
	}
	t.recordWork("cron jobs at once", t.sizes.CronJobs, work)
	return nil
}

// untilMinuteHas returns the time until the present minute has d left, or 0 if it has
// more.
func untilMinuteHas(d time.Duration) time.Duration {
	now := time.Now()
	left := now.Truncate(time.Minute).Add(time.Minute).Sub(now)
	if left >= d {
		return 0
	}
	return left
}

// measureAutoscalers changes the metric of many autoscalers, which the server has as a
// custom resource: until all have scaled their deployments. Most of the time is the
// period of 15 seconds in which autoscalers read metrics.
func measureAutoscalers(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, autoscaledNamespace, rolledNodes, nil)
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	c := s.clients[0]
	const metric = "/apis/external.metrics.k8s.io/v1beta1/namespaces/" + autoscaledNamespace + "/queues"
	if err := c.do(ctx, request{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: []byte(`{
		"metadata": {"name": "queues.external.metrics.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for autoscalers"}},
		"spec": {"group": "external.metrics.k8s.io", "scope": "Namespaced", "names": {"plural": "queues", "kind": "ExternalMetricValue", "listKind": "ExternalMetricValueList"},
			"versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}
	}`)}); err != nil {
		return err
	}
	defer finish(&err, func() error {
		return c.do(ctx, request{method: http.MethodDelete, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.external.metrics.k8s.io"})
	})
	value := func(n int) []byte {
		return fmt.Appendf(nil, `{"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValue", "metadata": {"name": "queue"}, "metricName": "queues", "timestamp": %q, "value": "%d"}`,
			time.Now().UTC().Format(time.RFC3339), n)
	}
	if err := until(ctx, func() (bool, error) {
		return served(ctx, c, request{method: http.MethodPost, path: metric, body: value(1)})
	}); err != nil {
		return err
	}
	const deployments = "/apis/apps/v1/namespaces/" + autoscaledNamespace + "/deployments"
	if err := t.create(ctx, s, deployments, t.sizes.Autoscalers, func(i int) []byte {
		app := fmt.Sprintf("web-%d", i)
		return fmt.Appendf(nil, `{"metadata": {"name": %[1]q}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": %[1]q}}, "template": %[2]s}}`, app, podTemplate(app))
	}); err != nil {
		return err
	}
	const autoscalers = "/apis/autoscaling/v2/namespaces/" + autoscaledNamespace + "/horizontalpodautoscalers"
	if err := t.create(ctx, s, autoscalers, t.sizes.Autoscalers, func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "web-%[1]d"}, "spec": {"minReplicas": 1, "maxReplicas": 10, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web-%[1]d"},
			"metrics": [{"type": "External", "external": {"metric": {"name": "queues"}, "target": {"type": "AverageValue", "averageValue": "1"}}}]}}`, i)
	}); err != nil {
		return err
	}
	type scaler struct {
		Status struct{ CurrentReplicas, DesiredReplicas int }
	}
	at := func(n int) func() (bool, error) {
		return all(ctx, c, autoscalers, t.sizes.Autoscalers, func(s *scaler) bool { return s.Status.CurrentReplicas == n && s.Status.DesiredReplicas == n })
	}
	if err := until(ctx, at(1)); err != nil {
		return fmt.Errorf("before the metric changes: %w", err)
	}
	work, err := t.work(func() error {
		if err := c.do(ctx, request{method: http.MethodPatch, path: metric + "/queue", contentType: mergeType, body: value(scaledReplicas)}); err != nil {
			return err
		}
		return until(ctx, at(scaledReplicas))
	})
	if err != nil {
		return err
	}
	t.recordWork("autoscalers followed a metric", t.sizes.Autoscalers, work)
	return nil
}

// served sends a request to a resource that may not be served yet.
func served(ctx context.Context, c *client, r request) (bool, error) {
	if missing, err := gone(ctx, c, r.path); missing || err != nil {
		return false, err
	}
	return true, c.do(ctx, r)
}

// measureClaims creates claims, for which there are volumes, until all are bound.
func measureClaims(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, claimNamespace, 0, nil)
	if err != nil {
		return err
	}
	const volumes = "/api/v1/persistentvolumes"
	if err := t.create(ctx, s, volumes, t.sizes.Claims, func(i int) []byte {
		return fmt.Appendf(nil, `{"metadata": {"name": "bench-%06d", "labels": {"bench": "claims"}}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
			"persistentVolumeReclaimPolicy": "Retain", "storageClassName": "bench", "hostPath": {"path": "/nonexistent/%06d"}}}`, i, i)
	}); err != nil {
		return err
	}
	type phased struct{ Status struct{ Phase string } }
	phase := func(path, phase string) func() (bool, error) {
		return all(ctx, s.clients[0], path, t.sizes.Claims, func(o *phased) bool { return o.Status.Phase == phase })
	}
	if err := until(ctx, phase(volumes, "Available")); err != nil {
		return err
	}
	const claims = "/api/v1/namespaces/" + claimNamespace + "/persistentvolumeclaims"
	work, err := t.work(func() error {
		if err := t.create(ctx, s, claims, t.sizes.Claims, func(i int) []byte {
			return fmt.Appendf(nil, `{"metadata": {"name": "claim-%06d"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "bench", "resources": {"requests": {"storage": "1Gi"}}}}`, i)
		}); err != nil {
			return err
		}
		return until(ctx, phase(claims, "Bound"))
	})
	if err != nil {
		return err
	}
	t.recordWork("claims bound", t.sizes.Claims, work)
	if err := s.clients[0].do(ctx, request{method: http.MethodDelete, path: claims}); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { return none(ctx, s.clients[0], claims+"?") }); err != nil {
		return err
	}
	if err := s.clients[0].do(ctx, request{method: http.MethodDelete, path: volumes + "?labelSelector=bench%3Dclaims"}); err != nil {
		return err
	}
	return s.end()
}

// measurePreemption fills nodes with pods of low priority, and creates pods of high
// priority until all have taken the place of others.
func measurePreemption(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, preemptNamespace, preemptedNodes, func(n *corev1.Node) {
		n.Status.Allocatable = n.Status.Allocatable.DeepCopy()
		n.Status.Allocatable[corev1.ResourceCPU] = *resource.NewQuantity(fullNode, resource.DecimalSI)
	})
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	const pods = "/api/v1/namespaces/" + preemptNamespace + "/pods"
	for class, priority := range map[string]int{"bench-low": 1, "bench-high": 1000} {
		if err := s.clients[0].do(ctx, request{method: http.MethodPost, path: "/apis/scheduling.k8s.io/v1/priorityclasses", body: fmt.Appendf(nil, `{"metadata": {"name": %q}, "value": %d}`, class, priority)}); err != nil {
			return err
		}
		defer finish(&err, func() error {
			return s.clients[0].do(ctx, request{method: http.MethodDelete, path: "/apis/scheduling.k8s.io/v1/priorityclasses/" + class})
		})
	}
	type pod struct{ Spec struct{ NodeName string } }
	run := func(class string, n int) error {
		if err := t.create(ctx, s, pods, n, func(i int) []byte {
			return fmt.Appendf(nil, `{"metadata": {"name": "%[1]s-%06[2]d", "labels": {"class": %[1]q}}, "spec": {"priorityClassName": %[1]q, "terminationGracePeriodSeconds": 1,
				"containers": [{"name": "main", "image": "registry.example.com/main:1", "resources": {"requests": {"cpu": "1"}}}]}}`, class, i)
		}); err != nil {
			return err
		}
		return until(ctx, all(ctx, s.clients[0], pods+"?labelSelector=class%3D"+class, n, func(p *pod) bool { return p.Spec.NodeName != "" }))
	}
	if err := run("bench-low", preemptedNodes*fullNode); err != nil {
		return err
	}
	work, err := t.work(func() error { return run("bench-high", t.sizes.Preemptors) })
	if err != nil {
		return err
	}
	t.recordWork("pods preempted others", t.sizes.Preemptors, work)
	return nil
}

// finish calls end, whose error counts if there is no other.
func finish(err *error, end func() error) {
	if failed := end(); *err == nil {
		*err = failed
	}
}
