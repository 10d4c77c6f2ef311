package established

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// ttl is the time in seconds after which a server that was killed counts no more.
	ttl = 10
	// retryInterval is how often etcd is tried.
	retryInterval = 100 * time.Millisecond
	// answerTimeout bounds how long a definition, or a server that stops, waits for etcd.
	answerTimeout = 2 * time.Second
)

// Servers are the API servers of one etcd. Each has a key there while it runs, below
// <prefix>/apiservers/, and writes it before it lists definitions (Informers), unless etcd is
// full. So a server that reads the keys after a definition was established, and finds only its
// own, knows that every other server will list the definition before it serves custom resources.
type Servers struct {
	client *clientv3.Client
	prefix string
	own    string
	// embedded is whether etcd is in this server's process: the key then needs no lease,
	// which would write to etcd while the server is idle. If the process is killed, the next
	// one has the same key.
	embedded bool

	once sync.Once
	// listable is closed when the key was written for the first time, or when etcd is full: no
	// definition can become established then.
	listable chan struct{}
}

// NewServers returns the servers of an etcd, to which the one with the id belongs once it
// runs. prefix is that of all keys (flag --etcd-prefix).
func NewServers(client *clientv3.Client, prefix, id string, embedded bool) *Servers {
	s := &Servers{client: client, prefix: "/" + strings.Trim(prefix, "/") + "/apiservers/", embedded: embedded, listable: make(chan struct{})}
	if embedded { // the same after a restart
		id = "embedded"
	}
	s.own = s.prefix + id
	return s
}

// Run keeps this server's key until ctx ends.
func (s *Servers) Run(ctx context.Context, clock clock.Clock) {
	for ctx.Err() == nil {
		keep := s.keep
		if s.embedded {
			keep = s.write
		}
		if err := keep(ctx); err != nil && ctx.Err() == nil {
			if errors.Is(err, rpctypes.ErrNoSpace) {
				s.setListable()
			}
			klog.FromContext(ctx).V(4).Info("Failed to register this API server in etcd, will retry", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-clock.After(retryInterval):
		}
	}
}

func (s *Servers) setListable() { s.once.Do(func() { close(s.listable) }) }

// keep writes the key with a lease, and returns when the lease has expired or ctx ends.
func (s *Servers) keep(ctx context.Context) error {
	lease, err := s.client.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		_, _ = s.client.Revoke(ctx, lease.ID) // otherwise it expires
	}()
	renewals, err := s.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return err
	}
	if _, err := s.client.Put(ctx, s.own, "", clientv3.WithLease(lease.ID)); err != nil {
		return err
	}
	s.setListable()
	for range renewals { // until it ends
	}
	return nil
}

// write writes the key of a server with an embedded etcd. When ctx ends it deletes the key:
// the data may be moved to an etcd of other servers.
func (s *Servers) write(ctx context.Context) error {
	_, err := s.client.Put(ctx, s.own, "")
	if err == nil {
		s.setListable()
		<-ctx.Done()
	}
	if ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	if _, err := s.client.Delete(stopping, s.own); err != nil {
		klog.FromContext(ctx).Info("Failed to delete the key of this API server from etcd", "key", s.own, "err", err)
	}
	return nil
}

// Alone reports whether this server is the only one. It does not know before its own key is
// written, or if etcd does not answer.
func (s *Servers) Alone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	all, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2))
	if err != nil {
		return false
	}
	for _, kv := range all.Kvs {
		if string(kv.Key) != s.own {
			return false
		}
	}
	return s.embedded || len(all.Kvs) == 1
}
