// Package reservation owns the keys in etcd that record which object holds a
// resource of which there is only one, for example a cluster IP address or a
// node port.
//
// A reservation is a key of its own, created by a transaction that fails if the
// key exists. So the servers need not coordinate, nothing is kept in
// memory, and a restart loses nothing. A crash may leave a reservation without
// an object, and the restore of a backup an object without its reservation:
// Store.Repair corrects both.
package reservation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
)

// Store holds the reservations of all pools.
type Store struct {
	kv     clientv3.KV
	prefix string
	clock  clock.PassiveClock
}

// New makes the store of the reservations below prefix, which is that of all
// objects (flag --etcd-prefix). A reservation's key in etcd is
// <prefix>/claims/<pool>/<key>; it cannot be renamed without a migration.
func New(kv clientv3.KV, prefix string, clock clock.PassiveClock) *Store {
	return &Store{kv: kv, prefix: "/" + strings.Trim(prefix, "/") + "/claims/", clock: clock}
}

// Pool returns the pool of that name. A pool need not be created first.
func (s *Store) Pool(name string) resource.Reservations {
	return &pool{store: s, name: name, prefix: s.prefix + name + "/"}
}

type pool struct {
	store        *Store
	name, prefix string
}

// record is the value of a reservation's key in etcd.
type record struct {
	resource.Owner
	// Time is when the key was reserved.
	Time time.Time `json:"time"`
}

// Reserve implements resource.Reservations.
func (p *pool) Reserve(ctx context.Context, key string, owner resource.Owner) error {
	value, err := json.Marshal(record{Owner: owner, Time: p.store.clock.Now()})
	if err != nil {
		return fmt.Errorf("reserve %s in %s: %w", key, p.name, err)
	}
	path := p.prefix + key
	resp, err := p.store.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(path), "=", 0)).
		Then(clientv3.OpPut(path, string(value))).
		Commit()
	if err != nil {
		return fmt.Errorf("reserve %s in %s: %w", key, p.name, err)
	}
	if !resp.Succeeded {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: p.name}, key)
	}
	return nil
}

// Release implements resource.Reservations.
func (p *pool) Release(ctx context.Context, key string, owner resource.Owner) error {
	resp, err := p.store.kv.Get(ctx, p.prefix+key)
	if err != nil {
		return fmt.Errorf("release %s in %s: %w", key, p.name, err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	held, err := p.decode(resp.Kvs[0].Key, resp.Kvs[0].Value, resp.Kvs[0].ModRevision)
	if err != nil {
		return err
	}
	if held.Owner != owner {
		return nil
	}
	_, err = p.delete(ctx, held)
	return err
}

// Held implements resource.Reservations.
func (p *pool) Held(ctx context.Context) (map[string]resource.Owner, error) {
	reservations, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	owners := make(map[string]resource.Owner, len(reservations))
	for key, held := range reservations {
		owners[key] = held.Owner
	}
	return owners, nil
}

// Count returns the number of keys of a pool that match.
func (s *Store) Count(ctx context.Context, pool string, match func(key string) bool) (int, error) {
	prefix := s.prefix + pool + "/"
	resp, err := s.kv.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("count the reservations in %s: %w", pool, err)
	}
	n := 0
	for _, kv := range resp.Kvs {
		if match(strings.TrimPrefix(string(kv.Key), prefix)) {
			n++
		}
	}
	return n, nil
}

// reservation is a reservation as it was read from etcd.
type reservation struct {
	record
	key      string
	revision int64
}

// list reads all reservations of the pool, by key.
func (p *pool) list(ctx context.Context) (map[string]reservation, error) {
	resp, err := p.store.kv.Get(ctx, p.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list the reservations in %s: %w", p.name, err)
	}
	reservations := make(map[string]reservation, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		held, err := p.decode(kv.Key, kv.Value, kv.ModRevision)
		if err != nil {
			return nil, err
		}
		reservations[held.key] = held
	}
	return reservations, nil
}

func (p *pool) decode(path, value []byte, revision int64) (reservation, error) {
	held := reservation{key: strings.TrimPrefix(string(path), p.prefix), revision: revision}
	if err := json.Unmarshal(value, &held.record); err != nil {
		return reservation{}, fmt.Errorf("reservation at %s is corrupt, delete it: %w", path, err)
	}
	return held, nil
}

// delete deletes a reservation unless its key has changed since it was read:
// then another server has released it, and another object may hold it. It
// reports whether it deleted the key.
func (p *pool) delete(ctx context.Context, held reservation) (bool, error) {
	path := p.prefix + held.key
	resp, err := p.store.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(path), "=", held.revision)).
		Then(clientv3.OpDelete(path)).
		Commit()
	if err != nil {
		return false, fmt.Errorf("release %s in %s: %w", held.key, p.name, err)
	}
	return resp.Succeeded, nil
}
