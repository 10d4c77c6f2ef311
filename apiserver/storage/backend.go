package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// Config is how to connect to etcd and under which keys to store objects.
type Config struct {
	// Servers are URLs: https://host:port, http://host:port or unix:///path.
	Servers []string
	// Overrides are resources that are stored in other etcd clusters, in the form of
	// ParseOverrides. TLS files and prefix are those of Servers.
	Overrides []string
	// Client, if set, is used instead of a connection to Servers: it is the client
	// of an etcd in the same process.
	Client *clientv3.Client
	// Check, if set, reports whether that etcd serves reads and writes.
	Check func(ctx context.Context) error
	// CertFile and KeyFile are the client's certificate, TrustedCAFile the
	// authorities that etcd's certificate must come from. If all are empty, TLS is not used.
	CertFile, KeyFile, TrustedCAFile string
	// Prefix is put before all keys; the default is /registry.
	Prefix string
	// CompactionInterval is the age at which history is dropped: a watch from
	// an older version gets 410. The default is 5 minutes (document 1, section 8).
	CompactionInterval time.Duration
	// Transformers encrypt and decrypt objects. Without them objects are stored as they
	// are, and an encrypted one cannot be read.
	Transformers value.ResourceTransformers
	// Writable, if set, returns why no object may be created or changed at the moment, and
	// nil if they may; Deletable is the same for deletions. Both or none are set. Writes end
	// with the error.
	Writable, Deletable func() error
	// SharedWatches serves equal watches from one watch of the cache, with package
	// watchmux.
	SharedWatches bool
	// PartWatches begins watches of a part of a type with a list from the cache, if that
	// part has few objects.
	PartWatches bool
	// HistoryBytes bounds the history of each watch cache: it does not grow over the
	// library's least number of events once their objects have so many bytes in etcd.
	// Zero is no bound besides the library's number of events.
	HistoryBytes int
	// Clock is that of compaction, of the watch caches and of Check; the default is the
	// machine's. Deadlines of requests are always by the machine's clock.
	Clock clock.WithTicker
}

const (
	// DefaultPrefix is where kube-apiserver stores, too.
	DefaultPrefix = "/registry"
	checkTimeout  = 2 * time.Second
)

// Backend is a process's connection to etcd.
type Backend struct {
	config    Config
	main      *cluster
	overrides overrides
	streams   streams
	health    health

	storesMu sync.Mutex
	stores   map[*lazyCache]schema.GroupResource
}

type compactor interface {
	etcd3.Compactor
	Stop()
}

// Open makes the connection. It does not wait for etcd: until etcd answers,
// requests fail and Check returns the reason.
func Open(config Config) (*Backend, error) {
	if len(config.Servers) == 0 {
		return nil, errors.New("no etcd servers: set --etcd-servers")
	}
	if config.Prefix == "" {
		config.Prefix = DefaultPrefix
	}
	if config.CompactionInterval == 0 {
		config.CompactionInterval = storagebackend.DefaultCompactInterval
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	main, err := config.cluster()
	if err != nil {
		return nil, err
	}
	b := &Backend{config: config, main: main, stores: map[*lazyCache]schema.GroupResource{}}
	b.health.clock, b.health.check = config.Clock, b.check
	if b.overrides, err = connectOverrides(config); err != nil {
		return nil, errors.Join(fmt.Errorf("--etcd-servers-overrides: %w", err), b.Close())
	}
	return b, nil
}

func (c Config) connect() (*kubernetes.Client, error) {
	if c.Client != nil {
		// The features of etcd are looked up by endpoint, which an etcd in the process does not have.
		feature.DefaultFeatureSupportChecker.CheckClient(c.Client.Ctx(), embedded{c.Client}, storage.RequestWatchProgress)
		client := &kubernetes.Client{Client: c.Client}
		client.Kubernetes = client
		return client, nil
	}
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	return kubernetes.New(clientv3.Config{
		Endpoints:            c.Servers,
		TLS:                  tlsConfig,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(reconnect())},
		Logger:               zap.NewNop(),
	})
}

// dialTimeout is how long connecting to a member of etcd may take.
const dialTimeout = 20 * time.Second

// reconnect returns how often a member of etcd that is away is tried. The default of gRPC
// begins with a second and grows to two minutes: a server that starts before its etcd, or
// outlives an outage of it, would wait for as long as that after etcd is back.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: dialTimeout,
	}
}

// embedded is the etcd in the same process, as the feature check reads it.
type embedded struct{ *clientv3.Client }

// Endpoints returns a name for the etcd of this process.
func (embedded) Endpoints() []string { return []string{"embedded"} }

// Status reports the version of the etcd that this binary contains.
func (embedded) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}

// tls returns nil if TLS is not configured.
func (c Config) tls() (*tls.Config, error) {
	if c.CertFile == "" && c.KeyFile == "" && c.TrustedCAFile == "" {
		return nil, nil
	}
	if c.TrustedCAFile != "" { // etcd's library ignores a file without certificates and then trusts none
		if _, err := cert.NewPool(c.TrustedCAFile); err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
	}
	config, err := transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.TrustedCAFile}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("TLS files for etcd (--etcd-cafile, --etcd-certfile, --etcd-keyfile): %w", err)
	}
	return config, nil
}

// Client is the connection to the main cluster, for packages that store something other
// than objects.
func (b *Backend) Client() *clientv3.Client { return b.main.client.Client }

// Embedded reports whether the main cluster is an etcd in this process.
func (b *Backend) Embedded() bool { return b.config.Client != nil }

// Prefix is put before all keys.
func (b *Backend) Prefix() string { return b.config.Prefix }

// Stored reports whether there are objects of a resource.
func (b *Backend) Stored(ctx context.Context, resource schema.GroupResource) (bool, error) {
	resp, err := b.clusterOf(resource).client.KV.Get(ctx, b.keys(resource), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	return err == nil && len(resp.Kvs) > 0, err
}

// keys returns the prefix of the keys of a resource's objects.
func (b *Backend) keys(resource schema.GroupResource) string {
	return "/" + strings.Trim(b.config.Prefix, "/") + keyPrefix(resource) + "/"
}

// Check reports whether etcd answers, in all clusters, within two seconds. The answer may be
// up to a second old if it is yes. An etcd that refuses writes because it has reached its
// quota answers; one in this process does not, since a restart reclaims its space.
func (b *Backend) Check(ctx context.Context) error { return b.health.ask(ctx) }

// check checks all clusters at the same time: one that does not answer takes the whole time
// limit, and the error must name only those that do not answer.
func (b *Backend) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := []func() error{func() error { return b.main.check(ctx, b.config.Prefix) }}
	if b.config.Check != nil {
		checks[0] = func() error { return b.config.Check(ctx) }
	}
	b.overrides.each(func(c *cluster) {
		checks = append(checks, func() error { return c.check(ctx, b.config.Prefix) })
	})
	errs := make([]error, len(checks))
	var running sync.WaitGroup
	for i, check := range checks {
		running.Go(func() { errs[i] = check() })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Full reports whether the last check has found a cluster that refuses writes because it has
// reached its quota. It does not find an etcd in this process.
func (b *Backend) Full() bool {
	full := b.main.full.Load()
	b.overrides.each(func(c *cluster) { full = full || c.full.Load() })
	return full
}

// Close ends the connections. The stores must have been destroyed before.
func (b *Backend) Close() error {
	b.main.compactor.Stop()
	errs := []error{b.overrides.close()}
	if b.config.Client == nil {
		errs = append(errs, b.main.client.Close())
	}
	return errors.Join(errs...)
}

// clusterOf returns the cluster that a resource is stored in.
func (b *Backend) clusterOf(resource schema.GroupResource) *cluster {
	if c := b.overrides[resource]; c != nil {
		return c
	}
	return b.main
}
