package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Namespaces of the measures of controllers.
const (
	scheduleNamespace = "bench-schedule"
	rolloutNamespace  = "bench-rollout"
	contentNamespace  = "bench-content"
	collectNamespace  = "bench-collect"
)

const (
	// workTimeout bounds the work of the controllers in one measure.
	workTimeout = 10 * time.Minute
	// pollPeriod is the resolution of the times of work.
	pollPeriod = 50 * time.Millisecond
)

// measureManagers measures the memory and CPU time of idle managers.
func measureManagers(ctx context.Context, t *trial) error { return t.recordIdle(ctx, "managers idle") }

// measureScheduling creates pods as fast as 16 clients can, and waits until the
// last is scheduled. Each node has room for all pods.
func measureScheduling(ctx context.Context, t *trial) error {
	return t.schedule(ctx, "pods scheduled", t.sizes.Nodes)
}

// measureLargeScheduling is measureScheduling with many nodes.
func measureLargeScheduling(ctx context.Context, t *trial) error {
	return t.schedule(ctx, "pods scheduled on many nodes", t.sizes.LargeNodes)
}

func (t *trial) schedule(ctx context.Context, name string, nodes int) error {
	clients, err := t.clients(ctx, 16)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], scheduleNamespace); err != nil {
		return err
	}
	if _, err := t.load(ctx, clients, nodes, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, request{method: http.MethodPost, path: "/api/v1/nodes", body: node(i)})
	}); err != nil {
		return err
	}
	k := podKind()
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	work, err := t.work(func() error {
		if _, err := t.load(ctx, clients, t.sizes.Scheduled, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, k.create(scheduleNamespace, fmt.Sprintf("pod-%06d", i), 0))
		}); err != nil {
			return err
		}
		return until(ctx, func() (bool, error) {
			return none(ctx, clients[0], k.collection(scheduleNamespace)+"?fieldSelector=spec.nodeName%3D")
		})
	})
	if err != nil {
		return err
	}
	t.recordWork(name, t.sizes.Scheduled, work)
	// These nodes have no agents to stop the pods.
	for _, path := range []string{k.collection(scheduleNamespace) + "?gracePeriodSeconds=0", "/api/v1/nodes"} {
		if err := clients[0].do(ctx, request{method: http.MethodDelete, path: path}); err != nil {
			return err
		}
	}
	return t.removeNamespace(ctx, clients[0], scheduleNamespace)
}

// node returns a node with room for all pods. No agent renews its lease, so it is
// ready for the grace period of nodes at most, 40 seconds.
func node(i int) []byte {
	const capacity = `{"cpu": "1000", "memory": "1000Gi", "ephemeral-storage": "1000Gi", "pods": "10000"}`
	return fmt.Appendf(nil, `{
		"apiVersion": "v1", "kind": "Node",
		"metadata": {"name": "bench-%[1]d", "labels": {"kubernetes.io/hostname": "bench-%[1]d", "topology.kubernetes.io/zone": "zone-%[2]d"}},
		"status": {"capacity": %[3]s, "allocatable": %[3]s, "conditions": [{
			"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": %[4]q, "lastTransitionTime": %[4]q
		}]}
	}`, i, i%3, capacity, time.Now().UTC().Format(time.RFC3339))
}

// rolledNodes is the number of simulated machines that run the deployments' pods.
const rolledNodes = 50

// measureRollout creates deployments of ten pods and waits until all are
// available, changes their template and waits until all are updated.
func measureRollout(ctx context.Context, t *trial) (err error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	s, err := t.stage(ctx, rolloutNamespace, rolledNodes, nil)
	if err != nil {
		return err
	}
	defer finish(&err, s.end)
	const path = "/apis/apps/v1/namespaces/" + rolloutNamespace + "/deployments"
	for _, f := range []struct {
		name    string
		request func(i int) request
	}{
		{"deployments created", func(i int) request {
			return request{method: http.MethodPost, path: path, body: deployment(i)}
		}},
		{"deployments rolled out", func(i int) request {
			return request{method: http.MethodPatch, path: fmt.Sprintf("%s/web-%d", path, i), contentType: mergeType,
				body: []byte(`{"spec":{"template":{"metadata":{"annotations":{"bench.svc.dev/revision":"2"}}}}}`)}
		}},
	} {
		work, err := t.work(func() error {
			if _, err := t.load(ctx, s.clients, t.sizes.Deployments, func(ctx context.Context, c *client, i int) error {
				return c.do(ctx, f.request(i))
			}); err != nil {
				return err
			}
			return until(ctx, func() (bool, error) { return complete(ctx, s.clients[0], path) })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		t.recordWork(f.name, t.sizes.Deployments, work)
	}
	return nil
}

func deployment(i int) []byte {
	return fmt.Appendf(nil, `{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": {"name": "web-%[1]d"},
		"spec": {
			"replicas": 10, "selector": {"matchLabels": {"app": "web-%[1]d"}},
			"template": {
				"metadata": {"labels": {"app": "web-%[1]d"}},
				"spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}
			}
		}
	}`, i)
}

// complete reports whether every deployment is successfully rolled out, as kubectl
// rollout status defines it.
func complete(ctx context.Context, c *client, path string) (bool, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return false, err
	}
	defer body.Close()
	var list struct {
		Items []struct {
			Metadata struct{ Generation int64 }
			Spec     struct{ Replicas int }
			Status   struct {
				ObservedGeneration                           int64
				Replicas, UpdatedReplicas, AvailableReplicas int
			}
		}
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return false, err
	}
	for _, d := range list.Items {
		if d.Status.ObservedGeneration < d.Metadata.Generation || d.Status.UpdatedReplicas != d.Spec.Replicas ||
			d.Status.AvailableReplicas != d.Spec.Replicas || d.Status.Replicas != d.Spec.Replicas {
			return false, nil
		}
	}
	return true, nil
}

// measureNamespace deletes a namespace of ConfigMaps.
func measureNamespace(ctx context.Context, t *trial) error {
	return t.deleteNamespace(ctx, "namespace of ConfigMaps deleted", contentNamespace, configMapKind(), t.sizes.Content, t.recordRemoval)
}

// removal measures a removal of n objects and records it by a name.
type removal func(ctx context.Context, c *client, name string, n int, remove func() error) error

// recordRemoval is a removal while nothing else happens.
func (t *trial) recordRemoval(_ context.Context, _ *client, name string, n int, remove func() error) error {
	work, err := t.work(remove)
	if err != nil {
		return err
	}
	t.recordWork(name, n, work)
	return nil
}

// deleteNamespace creates objects in a namespace, and measures its deletion.
func (t *trial) deleteNamespace(ctx context.Context, name, namespace string, k kind, objects int, measured removal) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], namespace); err != nil {
		return err
	}
	if _, err := t.load(ctx, clients, objects, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, k.create(namespace, fmt.Sprintf("content-%06d", i), 0))
	}); err != nil {
		return err
	}
	return measured(ctx, clients[0], name, objects, func() error { return t.removeNamespace(ctx, clients[0], namespace) })
}

// removeNamespace deletes a namespace and waits until it is gone.
func (t *trial) removeNamespace(ctx context.Context, c *client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + name
	if err := c.do(ctx, request{method: http.MethodDelete, path: path}); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) { return gone(ctx, c, path) })
}

func gone(ctx context.Context, c *client, path string) (bool, error) {
	err := c.do(ctx, request{method: http.MethodGet, path: path})
	if status := (*statusError)(nil); errors.As(err, &status) && status.code == http.StatusNotFound {
		return true, nil
	}
	return false, err
}

// measureCollection deletes the owner of many ConfigMaps.
func measureCollection(ctx context.Context, t *trial) error {
	return t.collect(ctx, "dependents collected", t.sizes.Dependents, t.recordRemoval)
}

// collect creates an owner and its dependents, and measures the deletion of the owner until
// the dependents are collected.
func (t *trial) collect(ctx context.Context, name string, dependents int, measured removal) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], collectNamespace); err != nil {
		return err
	}
	// Once the dependents of the second owner are collected, the collector has
	// observed those of the first.
	if err := t.own(ctx, clients, "many", dependents); err != nil {
		return err
	}
	if err := t.own(ctx, clients, "few", 1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	if err := disown(ctx, clients[0], "few"); err != nil {
		return err
	}
	if err := measured(ctx, clients[0], name, dependents, func() error { return disown(ctx, clients[0], "many") }); err != nil {
		return err
	}
	return t.removeNamespace(ctx, clients[0], collectNamespace)
}

const configMapsToCollect = "/api/v1/namespaces/" + collectNamespace + "/configmaps"

// own creates a ConfigMap and its dependents, which have its name as a label.
func (t *trial) own(ctx context.Context, clients []*client, name string, dependents int) error {
	body, err := clients[0].open(ctx, request{method: http.MethodPost, path: configMapsToCollect, body: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)})
	if err != nil {
		return err
	}
	defer body.Close()
	var owner struct{ Metadata struct{ UID string } }
	if err := json.NewDecoder(body).Decode(&owner); err != nil {
		return err
	}
	_, err = t.load(ctx, clients, dependents, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, request{method: http.MethodPost, path: configMapsToCollect, body: fmt.Appendf(nil, `{
			"metadata": {"name": "%[1]s-%06[2]d", "labels": {"of": %[1]q},
			"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": %[1]q, "uid": %[3]q}]}
		}`, name, i, owner.Metadata.UID)})
	})
	return err
}

// disown deletes an owner and waits until its dependents are gone.
func disown(ctx context.Context, c *client, name string) error {
	if err := c.do(ctx, request{method: http.MethodDelete, path: configMapsToCollect + "/" + name + "?propagationPolicy=Background"}); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) { return none(ctx, c, configMapsToCollect+"?labelSelector=of%3D"+name) })
}

// none reports whether a list, whose path has a query, is empty.
func none(ctx context.Context, c *client, path string) (bool, error) {
	n, err := countItems(ctx, c, path+"&limit=1")
	return n == 0, err
}

// countItems returns the number of objects in a list.
func countItems(ctx context.Context, c *client, path string) (int, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return 0, err
	}
	defer body.Close()
	var list struct{ Items []json.RawMessage }
	err = json.NewDecoder(body).Decode(&list)
	return len(list.Items), err
}

// work measures the time and CPU time until f returns.
func (t *trial) work(f func() error) (outcome, error) {
	before, err := cpuTime(t.instance.groups())
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return outcome{}, err
	}
	took := time.Since(began)
	after, err := cpuTime(t.instance.groups())
	return outcome{elapsed: took, cpu: after - before}, err
}

func (t *trial) recordWork(name string, n int, work outcome) {
	work.operations = n
	t.record(higher(name, "rate", "/s"), work.perSecond())
	t.record(lower(name, "managers' processor", "s/1000"), work.cpuPerThousand())
}

// until polls until the condition is true.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		if err := wait(ctx, pollPeriod); err != nil {
			return err
		}
	}
}
