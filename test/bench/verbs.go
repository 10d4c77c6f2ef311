package main

import (
	"context"
	"fmt"
	"time"
)

func measureConfigMaps(ctx context.Context, t *trial) error {
	return t.measureVerbs(ctx, configMapKind(), verbs(configMapKind(), verbNamespace))
}

func measurePods(ctx context.Context, t *trial) error {
	return t.measureVerbs(ctx, podKind(), verbs(podKind(), verbNamespace))
}

// A verb makes a request for the object of a name. Each write has a new revision.
type verb struct {
	name    string
	request func(name string, revision int64) request
}

// verbs returns the verbs for objects of a namespace.
func verbs(k kind, namespace string) []verb {
	return []verb{
		{"create", func(name string, revision int64) request { return k.create(namespace, name, revision) }},
		{"get", func(name string, _ int64) request { return k.get(namespace, name) }},
		{"update", func(name string, revision int64) request { return k.update(namespace, name, revision) }},
		{"merge patch", func(name string, revision int64) request { return k.patch(namespace, name, revision) }},
		{"apply", func(name string, revision int64) request { return k.apply(namespace, name, revision) }},
	}
}

func verbRow(k kind, v verb, clients int) string {
	return fmt.Sprintf("%s %s, %s", k.resource, v.name, plural(clients, "client"))
}

// measureVerbs runs the verbs with few and with many clients. Each number of clients has
// objects of its own, which the first verb creates.
func (t *trial) measureVerbs(ctx context.Context, k kind, verbs []verb) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], verbNamespace); err != nil {
		return err
	}
	if _, err := t.runVerbs(ctx, clients[:1], verbs, "warm-up", 20); err != nil {
		return err
	}
	for _, count := range clientCounts() {
		group := fmt.Sprintf("of%d", count)
		outcomes, err := t.runVerbs(ctx, clients[:count], verbs, group, t.sizes.Operations[count])
		if err != nil {
			return err
		}
		for i, v := range verbs {
			t.recordOutcome(verbRow(k, v, count), outcomes[i])
		}
	}
	return nil
}

// runVerbs runs n operations of each verb on n objects of the group.
func (t *trial) runVerbs(ctx context.Context, clients []*client, verbs []verb, group string, n int) ([]outcome, error) {
	var outcomes []outcome
	for _, v := range verbs {
		o, err := t.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, v.request(fmt.Sprintf("%s-%06d", group, i), time.Now().UnixNano()))
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (t *trial) recordOutcome(name string, o outcome) {
	t.record(higher(name, "rate", "/s"), o.perSecond())
	t.record(lower(name, "p50", "ms"), percentile(o.latencies, 50))
	t.record(lower(name, "p99", "ms"), percentile(o.latencies, 99))
	t.record(lower(name, "server processor", "s/1000"), o.cpuPerThousand())
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
