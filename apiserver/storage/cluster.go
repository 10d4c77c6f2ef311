package storage

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/klog/v2"
)

// cluster is one etcd cluster.
type cluster struct {
	servers   []string
	client    *kubernetes.Client
	compactor compactor
	full      atomic.Bool // the last check has found the alarm NOSPACE
}

// cluster makes the connection to the etcd cluster of the configuration.
func (c Config) cluster() (*cluster, error) {
	client, err := c.connect()
	if err != nil {
		return nil, fmt.Errorf("etcd at %v: %w", c.Servers, err)
	}
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	client.Watcher = reportingWatcher{client.Watcher}
	return &cluster{servers: c.Servers, client: client, compactor: etcd3.NewCompactor(client.Client, c.CompactionInterval, c.Clock, nil)}, nil
}

// check returns an error unless etcd answers. An etcd that has reached its quota does: a
// server that is not ready could not serve the deletions that make space.
func (c *cluster) check(ctx context.Context, prefix string) error {
	if _, err := c.client.Client.Get(ctx, path.Join("/", prefix, "health")); err != nil {
		return fmt.Errorf("etcd at %v does not answer: %w", c.servers, err)
	}
	alarms, err := c.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("etcd at %v: cannot list alarms: %w", c.servers, err)
	}
	full := false
	for _, a := range alarms.Alarms {
		switch a.Alarm {
		case pb.AlarmType_NONE:
		case pb.AlarmType_NOSPACE:
			full = true
		default:
			return fmt.Errorf("etcd at %v raises alarm %s", c.servers, a.Alarm)
		}
	}
	c.logFull(ctx, full)
	return nil
}

// logFull logs when the quota is reached, and when etcd accepts writes again.
func (c *cluster) logFull(ctx context.Context, full bool) {
	if c.full.Swap(full) == full {
		return
	}
	logger := klog.FromContext(ctx)
	if full {
		logger.Error(nil, "Etcd has reached its quota and refuses writes (alarm NOSPACE): delete objects, compact, defragment and disarm the alarm", "servers", c.servers)
		return
	}
	logger.Info("Etcd accepts writes again", "servers", c.servers)
}

// overrides are the clusters of the resources that are not stored in the main one.
type overrides map[schema.GroupResource]*cluster

// connectOverrides makes the connections of Config.Overrides: one for each list of
// servers.
func connectOverrides(config Config) (overrides, error) {
	servers, err := ParseOverrides(config.Overrides)
	if err != nil {
		return nil, err
	}
	clusters, byServers := overrides{}, map[string]*cluster{}
	for resource, urls := range servers {
		name := strings.Join(urls, ";")
		if byServers[name] == nil {
			config.Servers, config.Client = urls, nil
			c, err := config.cluster()
			if err != nil {
				return nil, errors.Join(err, clusters.close())
			}
			byServers[name] = c
		}
		clusters[resource] = byServers[name]
	}
	return clusters, nil
}

// each calls do for each cluster once.
func (o overrides) each(do func(*cluster)) {
	done := map[*cluster]bool{}
	for _, c := range o {
		if !done[c] {
			done[c] = true
			do(c)
		}
	}
}

func (o overrides) close() error {
	var errs []error
	o.each(func(c *cluster) {
		c.compactor.Stop()
		errs = append(errs, c.client.Close())
	})
	return errors.Join(errs...)
}

// ParseOverrides returns the etcd servers of resources from entries of the form
// GROUP/RESOURCE#URL;URL, whose group is empty for the core group, as the flag
// --etcd-servers-overrides of kube-apiserver has them.
func ParseOverrides(entries []string) (map[schema.GroupResource][]string, error) {
	servers := make(map[schema.GroupResource][]string, len(entries))
	for _, entry := range entries {
		name, urls, ok := strings.Cut(entry, "#")
		group, resource, named := strings.Cut(name, "/")
		if !ok || !named || len(validation.IsDNS1123Label(resource)) > 0 || group != "" && len(validation.IsDNS1123Subdomain(group)) > 0 {
			return nil, fmt.Errorf("%q must be GROUP/RESOURCE#URL;URL, as /events#http://127.0.0.1:2379, with names in lower case", entry)
		}
		of := schema.GroupResource{Group: group, Resource: resource}
		if servers[of] != nil {
			return nil, fmt.Errorf("%q is a second entry for %s", entry, of)
		}
		servers[of] = strings.Split(urls, ";")
		for _, server := range servers[of] {
			if err := ValidateServer(server); err != nil {
				return nil, fmt.Errorf("%q: %w", entry, err)
			}
		}
	}
	return servers, nil
}

// ValidateServer checks the URL of an etcd server.
func ValidateServer(server string) error {
	at, err := url.Parse(server)
	if err == nil {
		switch at.Scheme {
		case "unix", "unixs":
			if at.Host+at.Path != "" {
				return nil
			}
		case "http", "https":
			port, err := strconv.ParseUint(at.Port(), 10, 16)
			rest := url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}
			if err == nil && port > 0 && (at.Path == "" || at.Path == "/") && rest == *at {
				return nil
			}
		}
	}
	return fmt.Errorf("%q is not the URL of an etcd server; write http://HOST:PORT or https://HOST:PORT", server)
}
