package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// massNamespace has the pods that are deleted at once.
const massNamespace = "bench-mass"

// measureMassNamespace deletes a namespace of very many ConfigMaps, while a replica set
// is made elsewhere.
func measureMassNamespace(ctx context.Context, t *trial) error {
	k := configMapKind()
	return t.mass(ctx, "large namespace deleted", contentNamespace,
		func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, k.create(contentNamespace, fmt.Sprintf("content-%06d", i), 0))
		},
		func(ctx context.Context, c *client) error { return t.removeNamespace(ctx, c, contentNamespace) })
}

// measureMassPods deletes very many pods, which have no node, while a replica set is made
// elsewhere.
func measureMassPods(ctx context.Context, t *trial) error {
	k := podKind()
	return t.mass(ctx, "many pods deleted", massNamespace,
		func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, k.create(massNamespace, fmt.Sprintf("pod-%06d", i), 0))
		},
		func(ctx context.Context, c *client) error { return t.removeNamespace(ctx, c, massNamespace) })
}

// measureMassCollection deletes the owner of very many ConfigMaps, while a replica set is
// made elsewhere.
func measureMassCollection(ctx context.Context, t *trial) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], collectNamespace); err != nil {
		return err
	}
	// As in measureCollection: the collector observes in order.
	if err := t.own(ctx, clients, "many", t.sizes.Mass); err != nil {
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
	if err := t.removeMass(ctx, clients[0], "many dependents collected", func() error { return disown(ctx, clients[0], "many") }); err != nil {
		return err
	}
	return t.removeNamespace(ctx, clients[0], collectNamespace)
}

// mass creates very many objects in a namespace, and measures their removal.
func (t *trial) mass(ctx context.Context, name, namespace string, create func(context.Context, *client, int) error, remove func(context.Context, *client) error) error {
	clients, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := t.namespace(ctx, clients[0], namespace); err != nil {
		return err
	}
	if _, err := t.load(ctx, clients, t.sizes.Mass, create); err != nil {
		return err
	}
	return t.removeMass(ctx, clients[0], name, func() error { return remove(ctx, clients[0]) })
}

// removeMass measures a removal, and how long a replica set takes meanwhile.
func (t *trial) removeMass(ctx context.Context, c *client, name string, remove func() error) error {
	if err := t.namespace(ctx, c, busyNamespace); err != nil {
		return err
	}
	var made time.Duration
	work, err := t.work(func() error {
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
	t.recordWork(name, t.sizes.Mass, work)
	t.record(lower(name+", a replica set meanwhile", "create to pods", "ms"), milliseconds(made))
	if err := c.do(ctx, request{method: http.MethodDelete, path: "/api/v1/namespaces/" + busyNamespace}); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) { return gone(ctx, c, "/api/v1/namespaces/"+busyNamespace) })
}
