package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/component"
	"svc.dev/svc/internal/datadir"
)

// embeddedEtcd is an etcd member in this process.
type embeddedEtcd struct {
	dir     datadir.Dir
	checked *etcd.Checked // nil before check
	member  *etcd.Server
}

// check returns an error unless the member can run. It is called before the other components
// start, so that a start that is refused changes nothing.
func (e *embeddedEtcd) check() error {
	checked, err := etcd.Check(etcd.Config{Dir: e.dir.Etcd(), WholeLog: !utilfeature.DefaultFeatureGate.Enabled(gates.SvcShortLog)})
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	e.checked = &checked
	return nil
}

// Name implements component.Component.
func (*embeddedEtcd) Name() string { return "etcd" }

// Start implements component.Component.
func (e *embeddedEtcd) Start(ctx context.Context) (err error) {
	if e.checked == nil {
		if err := e.check(); err != nil {
			return err
		}
	}
	if e.member, err = e.checked.Start(ctx); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	return nil
}

// Ready implements component.Component: a member that has started serves.
func (e *embeddedEtcd) Ready(context.Context) (string, error) {
	return strings.Join(e.member.Endpoints(), ","), nil
}

// Failed implements component.Component.
func (e *embeddedEtcd) Failed() <-chan error { return e.member.Failed() }

// Stop implements component.Component.
func (e *embeddedEtcd) Stop() error { e.member.Stop(); return nil }

// externalEtcd stands for an etcd cluster that others run.
type externalEtcd struct {
	flag    string // which names the servers
	servers []string
	clock   clock.WithTicker
}

// serversFlag names the servers of the main cluster, overridesFlag those of some resources.
const serversFlag, overridesFlag = "etcd-servers", "etcd-servers-overrides"

// overriddenEtcds returns the clusters of some resources, which the options have validated.
func overriddenEtcds(entries []string, clock clock.WithTicker) []component.Component {
	overridden, err := storage.ParseOverrides(entries)
	if err != nil {
		return nil // the API server reports it
	}
	servers := map[string][]string{}
	for _, urls := range overridden {
		servers[strings.Join(urls, ",")] = urls
	}
	var clusters []component.Component
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		clusters = append(clusters, externalEtcd{overridesFlag, servers[name], clock})
	}
	return clusters
}

// Name implements component.Component.
func (e externalEtcd) Name() string { return "etcd of --" + e.flag }

// Start implements component.Component.
func (externalEtcd) Start(context.Context) error { return nil }

const (
	// etcdTimeout is how long Ready waits for a server.
	etcdTimeout = time.Minute
	// etcdRetry is the time between two attempts to reach the servers, and the time
	// limit of each connection.
	etcdRetry = time.Second
)

// Ready implements component.Component. It waits until one of the servers accepts
// connections. The API server, which is next, would log each attempt.
func (e externalEtcd) Ready(ctx context.Context) (string, error) {
	until := e.clock.Now().Add(etcdTimeout)
	for {
		err := e.reach(ctx)
		if err == nil {
			return strings.Join(e.servers, ","), nil
		}
		if !e.clock.Now().Before(until) {
			return "", fmt.Errorf("--%s: no server of %s accepted a connection for %s: start etcd, or name other servers (%w)",
				e.flag, strings.Join(e.servers, ","), etcdTimeout, err)
		}
		select {
		case <-e.clock.After(etcdRetry):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// reach returns nil if a server accepts a connection, and otherwise why the first one does not.
func (e externalEtcd) reach(ctx context.Context) error {
	var first error
	for _, server := range e.servers {
		at, err := url.Parse(server)
		if err != nil {
			return err
		}
		network, address := "tcp", at.Host
		if at.Scheme == "unix" || at.Scheme == "unixs" {
			network, address = "unix", at.Host+at.Path
		}
		dialer := net.Dialer{Timeout: etcdRetry}
		connection, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return connection.Close()
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// Failed implements component.Component.
func (externalEtcd) Failed() <-chan error { return nil }

// Stop implements component.Component.
func (externalEtcd) Stop() error { return nil }
