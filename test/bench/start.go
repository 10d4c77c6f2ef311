package main

import (
	"context"
	"net/http"
	"os"
	"time"
)

// measureBinary measures the size of what an operator installs.
func measureBinary(_ context.Context, t *trial) error {
	size, err := sizeOf(t.system.Binaries())
	if err != nil {
		return err
	}
	t.record(lower("binary", "size", "MB"), size)
	return nil
}

// sizeOf returns the size of files in megabytes.
func sizeOf(files []string) (float64, error) {
	var sum int64
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return float64(sum) / 1e6, nil
}

// measureStart measures the time from the start of the first process until /readyz
// succeeds, on an empty directory.
func measureStart(_ context.Context, t *trial) error {
	t.record(lower("start, first", "time", "ms"), milliseconds(t.firstStart))
	return nil
}

// measureRestart measures the same with the data of an almost empty cluster.
func measureRestart(ctx context.Context, t *trial) error {
	took, err := t.restart(ctx)
	if err != nil {
		return err
	}
	t.record(lower("start, again", "time", "ms"), milliseconds(took))
	return nil
}

// measureIdle measures the memory and CPU time of the processes without clients.
func measureIdle(ctx context.Context, t *trial) error { return t.recordIdle(ctx, "idle") }

func (t *trial) recordIdle(ctx context.Context, name string) error {
	if err := wait(ctx, t.sizes.Settle); err != nil {
		return err
	}
	if err := t.recordMemory(name); err != nil {
		return err
	}
	before, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := wait(ctx, t.sizes.Idle); err != nil {
		return err
	}
	after, err := cpuTime(t.instance.groups())
	if err != nil {
		return err
	}
	t.record(lower(name, "processor", "ms/min"), milliseconds(after-before)/time.Since(began).Minutes())
	return nil
}

// recordMemory records the memory of the measured processes.
func (t *trial) recordMemory(when string) error {
	return t.recordMemoryOf(when, t.instance.groups())
}

// recordMemoryOf is recordMemory of some process groups.
func (t *trial) recordMemoryOf(when string, groups []int) error {
	m, err := memoryOf(groups)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		figure string
		bytes  uint64
	}{{"memory, RSS", m.RSS}, {"memory, PSS", m.PSS}, {"memory, anonymous", m.Anon}, {"memory, largest RSS", m.Peak}} {
		t.record(lower(when, f.figure, "MB"), float64(f.bytes)/1e6)
	}
	return nil
}

// measureFirst measures the first requests of their kind: clients wait for the
// work that a server defers at its start.
func measureFirst(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	k := podKind()
	if err := t.namespace(ctx, clients[0], firstNamespace); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		request
	}{
		{"first create", k.create(firstNamespace, "first", 0)},
		{"first get", k.get(firstNamespace, "first")},
		{"first apply", k.apply(firstNamespace, "first", 1)},
		{"first /apis", request{method: http.MethodGet, path: "/apis", accept: discoveryType}},
		{"first /openapi/v2", request{method: http.MethodGet, path: "/openapi/v2"}},
	} {
		began := time.Now()
		if err := clients[0].do(ctx, f.request); err != nil {
			return err
		}
		t.record(lower(f.name, "time", "ms"), milliseconds(time.Since(began)))
	}
	return nil
}
