// Package claims keeps in etcd who holds what of which there is only one: the
// cluster IP addresses and node ports of services, say.
//
// A claim is a key of its own, <prefix>/claims/<pool>/<key>, created by a
// transaction that fails if it exists. So no server needs to know of another,
// nothing is kept in memory, and a restart loses nothing. What a crash leaves
// behind (a claim without an object, or the reverse after a backup was
// restored) is settled by Store.Repair.
package claims

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

// Store is the claims of all pools.
type Store struct {
	kv     clientv3.KV
	prefix string
	clock  clock.PassiveClock
}

// New makes the store of the claims below prefix, which is that of all objects
// (flag --etcd-prefix).
func New(kv clientv3.KV, prefix string, clock clock.PassiveClock) *Store {
	return &Store{kv: kv, prefix: "/" + strings.Trim(prefix, "/") + "/claims/", clock: clock}
}

// Pool gives access to the pool of that name; a pool exists by being used.
func (s *Store) Pool(name string) resource.Claims {
	return &pool{store: s, name: name, prefix: s.prefix + name + "/"}
}

type pool struct {
	store        *Store
	name, prefix string
}

// record is the value of a claim's key.
type record struct {
	resource.Owner
	// Time is when the key was claimed.
	Time time.Time `json:"time"`
}

// Claim implements resource.Claims.
func (p *pool) Claim(ctx context.Context, key string, owner resource.Owner) error {
	value, err := json.Marshal(record{Owner: owner, Time: p.store.clock.Now()})
	if err != nil {
		return fmt.Errorf("claim %s in %s: %w", key, p.name, err)
	}
	path := p.prefix + key
	resp, err := p.store.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(path), "=", 0)).
		Then(clientv3.OpPut(path, string(value))).
		Commit()
	if err != nil {
		return fmt.Errorf("claim %s in %s: %w", key, p.name, err)
	}
	if !resp.Succeeded {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: p.name}, key)
	}
	return nil
}

// Release implements resource.Claims.
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
	_, err = p.free(ctx, held)
	return err
}

// Held implements resource.Claims.
func (p *pool) Held(ctx context.Context) (map[string]resource.Owner, error) {
	claims, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	owners := make(map[string]resource.Owner, len(claims))
	for key, held := range claims {
		owners[key] = held.Owner
	}
	return owners, nil
}

// claim is a claim as it was read.
type claim struct {
	record
	key      string
	revision int64
}

func (p *pool) list(ctx context.Context) (map[string]claim, error) {
	resp, err := p.store.kv.Get(ctx, p.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list the claims in %s: %w", p.name, err)
	}
	claims := make(map[string]claim, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		held, err := p.decode(kv.Key, kv.Value, kv.ModRevision)
		if err != nil {
			return nil, err
		}
		claims[held.key] = held
	}
	return claims, nil
}

func (p *pool) decode(path, value []byte, revision int64) (claim, error) {
	held := claim{key: strings.TrimPrefix(string(path), p.prefix), revision: revision}
	if err := json.Unmarshal(value, &held.record); err != nil {
		return claim{}, fmt.Errorf("claim at %s is corrupt, delete it: %w", path, err)
	}
	return held, nil
}

// free deletes a claim, unless it has changed since it was read: then somebody
// else has released it and it is another's now. It reports whether it did.
func (p *pool) free(ctx context.Context, held claim) (bool, error) {
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
