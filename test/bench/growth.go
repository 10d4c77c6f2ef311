package main

import (
	"context"
	"fmt"
	"net/http"
)

// measureGrowth measures how latencies, processor time and memory grow with the number
// of pods, for the plot (plot.go).
func measureGrowth(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 16)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	for _, n := range t.sizes.Growth {
		if err := t.growTo(ctx, clients, n); err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return nil
}

// growTo creates pods until there are n, and measures the server then.
func (t *trial) growTo(ctx context.Context, clients []*client, n int) error {
	record := func(figure, unit string, value float64) {
		t.record(row{Name: fmt.Sprintf("%d pods there", n), Figure: figure, Unit: unit, At: n}, value)
	}
	recordLatencies := func(verb string, o outcome) {
		record(verb+", p50", "ms", percentile(o.latencies, 50))
		record(verb+", p99", "ms", percentile(o.latencies, 99))
	}
	if t.pods < n {
		o, err := t.createPods(ctx, clients, n)
		if err != nil {
			return err
		}
		recordLatencies("create, 16 clients", o)
		record("create, server processor", "s/1000", o.cpuPerThousand())
	}
	k := podKind()
	all := k.collection(listNamespace) + "?resourceVersion=0"
	names := func(i int) string { return podName(i * n / t.sizes.GrowthRequests) }
	for _, v := range []struct {
		name    string
		count   int
		request func(i int) request
	}{
		{"get", t.sizes.GrowthRequests, func(i int) request { return k.get(listNamespace, names(i)) }},
		{"merge patch", t.sizes.GrowthRequests, func(i int) request { return k.patch(listNamespace, names(i), int64(n)) }},
		{"list of 500", t.sizes.Lists, func(int) request {
			return request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", k.collection(listNamespace), chunk)}
		}},
		{"list of all, protobuf", t.sizes.Lists, func(int) request { return request{method: http.MethodGet, path: all, accept: protobufType} }},
	} {
		o, err := t.load(ctx, clients[:1], v.count, func(ctx context.Context, c *client, i int) error { return c.do(ctx, v.request(i)) })
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		recordLatencies(v.name, o)
	}
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	m, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	record("memory, RSS", "MB", float64(m.RSS)/1e6)
	return nil
}
