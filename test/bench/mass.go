package main

import (
	"context"
	"errors"
	"time"
)

// massNamespace has the pods that are deleted at once.
const massNamespace = "bench-mass"

// measureMassNamespace deletes a namespace of very many ConfigMaps, while a replica set
// is made elsewhere.
func measureMassNamespace(ctx context.Context, t *trial) error {
	return t.deleteNamespace(ctx, "large namespace deleted", contentNamespace, configMapKind(), t.sizes.Mass, t.recordBusyRemoval)
}

// measureMassPods deletes very many pods, which have no node, while a replica set is made
// elsewhere.
func measureMassPods(ctx context.Context, t *trial) error {
	return t.deleteNamespace(ctx, "many pods deleted", massNamespace, podKind(), t.sizes.Mass, t.recordBusyRemoval)
}

// measureMassCollection deletes the owner of very many ConfigMaps, while a replica set is
// made elsewhere.
func measureMassCollection(ctx context.Context, t *trial) error {
	return t.collect(ctx, "many dependents collected", t.sizes.Mass, t.recordBusyRemoval)
}

// recordBusyRemoval is a removal while a replica set is made elsewhere; how long that takes
// is recorded, too.
func (t *trial) recordBusyRemoval(ctx context.Context, c *client, name string, n int, remove func() error) error {
	if err := t.namespace(ctx, c, busyNamespace); err != nil {
		return err
	}
	var made time.Duration
	err := t.recordRemoval(ctx, c, name, n, func() error {
		removed := make(chan error, 1)
		go func() { removed <- remove() }()
		began := time.Now()
		err := makeReplicaSet(ctx, c)
		made = time.Since(began)
		return errors.Join(err, <-removed)
	})
	if err != nil {
		return err
	}
	t.record(lower(name+", a replica set meanwhile", "create to pods", "ms"), milliseconds(made))
	return t.removeNamespace(ctx, c, busyNamespace)
}
