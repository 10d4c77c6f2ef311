package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	scaleNamespace  = "bench-scale"
	// establishTimeout bounds the time until a definition is established.
	establishTimeout = time.Minute
	// rare is how many objects there are for one that a selector selects.
	rare = 100
)

// definition returns the definition of the kind Widget in the i-th group, with a schema
// of the size of a small operator's.
func definition(i int) []byte {
	fields := map[string]any{}
	for f := range 30 {
		fields[fmt.Sprintf("field%02d", f)] = map[string]any{"type": "string", "description": "The field is described by a sentence of the usual length.", "maxLength": 100}
	}
	group := fmt.Sprintf("g%04d.bench.example.com", i)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec":   map[string]any{"type": "object", "properties": fields},
					"status": map[string]any{"type": "object", "properties": fields},
				}}},
			}},
		},
	})
	if err != nil {
		panic(err) // maps of strings and numbers can be encoded
	}
	return body
}

// measureDefinitions creates definitions one by one, and measures what they cost.
func measureDefinitions(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	c := clients[0]
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	before, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	n := t.sizes.Definitions
	o, err := t.load(ctx, clients, n, establish)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d definitions", n)
	t.record(lower(name, "create to Established, p50", "ms"), percentile(o.latencies, 50))
	t.record(lower(name, "create to Established, p99", "ms"), percentile(o.latencies, 99))
	t.record(lower(name, "server processor", "s/1000"), o.cpuPerThousand())
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	after, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	t.record(lower(name, "memory of each, anonymous", "kB"), float64(int64(after.Anon)-int64(before.Anon))/float64(n)/1e3)
	for _, r := range []struct{ figure, path, accept string }{
		{"discovery, p50", "/apis", discoveryType}, {"OpenAPI 2, p50", "/openapi/v2", ""}, {"OpenAPI 3 of a group, p50", "/openapi/v3/apis/g0000.bench.example.com/v1", ""},
	} {
		get := whole(request{path: r.path, accept: r.accept})
		if err := get(ctx, c); err != nil { // the first builds the document
			return fmt.Errorf("%s: %w", r.path, err)
		}
		o, err := t.load(ctx, clients, t.sizes.Lists, func(ctx context.Context, c *client, _ int) error { return get(ctx, c) })
		if err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
		t.record(lower(name, r.figure, "ms"), percentile(o.latencies, 50))
	}
	body, err := c.open(ctx, request{method: http.MethodGet, path: "/metrics", accept: "text/plain"})
	if err != nil {
		return err
	}
	defer body.Close()
	size, err := io.Copy(io.Discard, body)
	t.record(lower(name, "/metrics", "kB"), float64(size)/1e3)
	return err
}

// establish creates the i-th definition and waits until it is established.
func establish(ctx context.Context, c *client, i int) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	body := definition(i)
	if err := c.do(ctx, request{method: http.MethodPost, path: definitionsPath, body: body}); err != nil {
		return err
	}
	r := request{method: http.MethodGet, path: fmt.Sprintf("%s/widgets.g%04d.bench.example.com", definitionsPath, i)}
	for {
		if done, err := established(ctx, c, r); done || err != nil {
			return err
		}
		if err := wait(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("definition %d is not established: %w", i, err)
		}
	}
}

func established(ctx context.Context, c *client, r request) (bool, error) {
	body, err := c.open(ctx, r)
	if err != nil {
		return false, err
	}
	defer body.Close()
	var definition struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.NewDecoder(body).Decode(&definition); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, body)
	return slices.Contains(definition.Status.Conditions, struct{ Type, Status string }{"Established", "True"}), err
}

// widgetKind returns the custom kind of the first definition, with small objects.
func widgetKind(app string) kind {
	k := newKind("widgets", `{
		"apiVersion": "g0000.bench.example.com/v1", "kind": "Widget",
		"metadata": {"namespace": "@", "name": "@", "labels": {"app": "`+app+`"}, "annotations": {"`+revisionKey+`": "@"}},
		"spec": {"field00": "a", "field01": "b", "field02": "c", "field03": "d"}
	}`, 0)
	k.api = "/apis/g0000.bench.example.com/v1"
	return k
}

// measureObjects lists many objects of a built-in kind and of a custom one, all and with
// selectors.
func measureObjects(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], scaleNamespace); err != nil {
		return err
	}
	err = establish(ctx, clients[0], 0)
	if status := (*statusError)(nil); errors.As(err, &status) && status.code == http.StatusConflict {
		err = nil // an earlier measure has created it
	}
	if err != nil {
		return err
	}
	maps := func(app string) kind {
		return newKind("configmaps", `{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": {"namespace": "@", "name": "@", "labels": {"app": "`+app+`"}, "annotations": {"`+revisionKey+`": "@"}},
			"data": {"field00": "a", "field01": "b", "field02": "c", "field03": "d"}
		}`, 0)
	}
	for _, of := range []struct {
		name string
		kind func(app string) kind
	}{{"ConfigMaps", maps}, {"custom resources", widgetKind}} {
		if err := t.listObjects(ctx, clients, of.name, of.kind); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

func (t *trial) listObjects(ctx context.Context, clients []*client, name string, of func(app string) kind) error {
	kinds, n := []kind{of("rare"), of("bench")}, t.sizes.Objects
	o, err := t.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, kinds[min(i%rare, 1)].create(scaleNamespace, fmt.Sprintf("object-%06d", i), 0))
	})
	if err != nil {
		return err
	}
	prefix := fmt.Sprintf("%d %s", n, name)
	t.record(higher(prefix+", create, 64 clients", "rate", "1/s"), o.perSecond())
	path := kinds[0].collection(scaleNamespace)
	for _, l := range []struct{ name, query string }{
		{"list", ""}, {"list of one in 100 by label", "?labelSelector=app%3Drare"}, {"list of one in 100 by label, resourceVersion=0", "?resourceVersion=0&labelSelector=app%3Drare"},
		{"list by name", "?fieldSelector=metadata.name%3Dobject-000042"},
	} {
		list := whole(request{path: path + l.query})
		if err := warmUp(ctx, clients[0], list); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		o, err := t.load(ctx, clients[:1], t.sizes.Lists, func(ctx context.Context, c *client, _ int) error { return list(ctx, c) })
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		t.record(lower(prefix+", "+l.name, "p50", "ms"), percentile(o.latencies, 50))
		t.record(lower(prefix+", "+l.name, "server processor", "s/1000"), o.cpuPerThousand())
	}
	return nil
}

// warmUp lists once, as often as the server says that it still reads the objects into its
// cache.
func warmUp(ctx context.Context, c *client, list func(context.Context, *client) error) error {
	for {
		err := list(ctx, c)
		if status := (*statusError)(nil); !errors.As(err, &status) || status.code != http.StatusTooManyRequests {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// measureIdleWatches opens watches that get no events, and measures their memory.
func measureIdleWatches(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	const namespace = "bench-idle"
	k := configMapKind()
	if err := t.namespace(ctx, clients[0], namespace); err != nil {
		return err
	}
	if err := clients[0].do(ctx, k.create(namespace, "object", 0)); err != nil {
		return err
	}
	config, err := t.config()
	if err != nil {
		return err
	}
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	return t.idleWatches(ctx, config, k.collection(namespace))
}

func (t *trial) idleWatches(ctx context.Context, config *rest.Config, path string) error {
	before, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	watches := t.sizes.IdleWatches
	audience := newAudience(1) // an event that does not come
	defer audience.leave()
	for seats := watches; seats > 0; seats -= watchersPerConnection {
		if err := audience.join(ctx, config, path, min(seats, watchersPerConnection)); err != nil {
			return err
		}
	}
	if err := audience.waitBegun(); err != nil {
		return err
	}
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	after, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	cpu, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	if err := wait(ctx, t.sizes.Idle); err != nil {
		return err
	}
	later, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d idle watches", watches)
	t.record(lower(name, "memory of each, anonymous", "kB"), float64(int64(after.Anon)-int64(before.Anon))/float64(watches)/1e3)
	t.record(lower(name, "processor", "s/min"), (later-cpu).Seconds()/t.sizes.Idle.Minutes())
	return nil
}
