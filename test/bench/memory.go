package main

import "context"

// measureMemory is what the processes hold once there are many pods, and how
// long they take to start with them.
func measureMemory(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	pods := t.pods
	before, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	if err := t.seedPods(ctx, clients, t.sizes.MemoryPods); err != nil {
		return err
	}
	if err := wait(ctx, t.sizes.MemorySettle); err != nil {
		return err
	}
	if err := t.recordMemory("many pods"); err != nil {
		return err
	}
	after, err := memoryOf(t.instance.groups())
	if err != nil {
		return err
	}
	if made := t.sizes.MemoryPods - pods; made > 0 {
		t.record(lower("many pods", "memory of each, anonymous", "kB"), float64(int64(after.Anon)-int64(before.Anon))/float64(made)/1e3)
	}
	closeAll(clients)
	took, err := t.restart(ctx)
	if err != nil {
		return err
	}
	t.record(lower("start, many pods", "time", "ms"), milliseconds(took))
	return nil
}
