package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// crowdedPrefix is the name prefix of the namespaces that are deleted at once.
	crowdedPrefix = "bench-crowded-"
	// bystanderNamespace is deleted after them, and busyNamespace stays.
	bystanderNamespace = "bench-bystander"
	busyNamespace      = "bench-busy"
)

// measureNamespaces deletes many namespaces at once, each with a few objects.
// Meanwhile it deletes another one, and creates a replica set in a third. Neither
// should have to wait until all others are finished.
func measureNamespaces(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	if err := t.namespace(ctx, clients[0], busyNamespace); err != nil {
		return err
	}
	if err := t.furnish(ctx, clients[0], bystanderNamespace); err != nil {
		return err
	}
	crowded := func(i int) string { return fmt.Sprintf("%s%04d", crowdedPrefix, i) }
	if _, err := t.load(ctx, clients, t.sizes.Namespaces, func(ctx context.Context, c *client, i int) error {
		return t.furnish(ctx, c, crowded(i))
	}); err != nil {
		return err
	}
	var deleted, made time.Duration
	work, err := t.work(func() error {
		if _, err := t.load(ctx, clients, t.sizes.Namespaces, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + crowded(i)})
		}); err != nil {
			return err
		}
		began := time.Now()
		if err := makeReplicaSet(ctx, clients[0]); err != nil {
			return err
		}
		made = time.Since(began)
		began = time.Now()
		if err := t.removeNamespace(ctx, clients[0], bystanderNamespace); err != nil {
			return err
		}
		deleted = time.Since(began)
		return until(ctx, func() (bool, error) {
			return none(ctx, clients[0], "/api/v1/namespaces?labelSelector=bench")
		})
	})
	if err != nil {
		return err
	}
	t.recordWork("namespaces deleted", t.sizes.Namespaces, work)
	t.record(lower("another namespace meanwhile", "delete to gone", "s"), deleted.Seconds())
	t.record(lower("a replica set meanwhile", "create to pods", "ms"), milliseconds(made))
	// The pods fit no node, so they go without an agent that stops them.
	return t.removeNamespace(ctx, clients[0], busyNamespace)
}

// furnish creates a namespace with two objects besides its service account.
// All but the bystander have the label bench=crowded.
func (t *trial) furnish(ctx context.Context, c *client, name string) error {
	label := ""
	if name != bystanderNamespace {
		label = `,"labels":{"bench":"crowded"}`
	}
	path := "/api/v1/namespaces"
	for _, r := range []request{
		{path: path, body: fmt.Appendf(nil, `{"metadata":{"name":%q%s}}`, name, label)},
		{path: path + "/" + name + "/configmaps", body: []byte(`{"metadata":{"name":"content"},"data":{"a":"b"}}`)},
		{path: path + "/" + name + "/secrets", body: []byte(`{"metadata":{"name":"content"},"stringData":{"a":"b"}}`)},
	} {
		r.method = http.MethodPost
		if err := c.do(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// makeReplicaSet creates a replica set of ten pods and waits until they exist.
func makeReplicaSet(ctx context.Context, c *client) error {
	const namespace = "/namespaces/" + busyNamespace
	if err := c.do(ctx, request{method: http.MethodPost, path: "/apis/apps/v1" + namespace + "/replicasets", body: []byte(`{
		"metadata": {"name": "busy"},
		"spec": {"replicas": 10, "selector": {"matchLabels": {"app": "busy"}}, "template": {
			"metadata": {"labels": {"app": "busy"}},
			"spec": {"nodeSelector": {"bench": "none"}, "containers": [{"name": "busy", "image": "registry.example.com/busy:1"}]}
		}}
	}`)}); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		n, err := countItems(ctx, c, "/api/v1"+namespace+"/pods?labelSelector=app%3Dbusy")
		return n == 10, err
	})
}
