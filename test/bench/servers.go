package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

const (
	// mostServers is the number of API servers on one etcd.
	mostServers = 3
	// serversClients is the number of clients that share them.
	serversClients = 12
	// serversPods is the number of pods that are there.
	serversPods = 2_000
)

// serversOnEtcd is several API servers on one etcd. Their command lines differ in their
// ports only.
type serversOnEtcd struct {
	*kubeSystem // etcd and the first server
	name        string
	command     []string // words before the flags
	further     []string // ports of the other servers
}

// serversOnOneEtcd returns API servers of svc on one etcd, and of Kubernetes on another.
// The flags are the same: those of `svc apiserver` are kube-apiserver's.
func serversOnOneEtcd(o options) ([]system, error) {
	var systems []system
	for _, s := range []struct {
		name, flag string
		command    []string
	}{
		{name: "svc", flag: "svc", command: []string{"apiserver"}},
		{name: "kube", flag: "kube-apiserver"},
	} {
		if *o.binaries()[s.flag] == "" {
			continue
		}
		if err := o.need(s.flag, "etcd"); err != nil {
			return nil, err
		}
		first, err := newKube(*o.binaries()[s.flag], o.etcd)
		if err != nil {
			return nil, err
		}
		several := &serversOnEtcd{kubeSystem: first, name: s.name, command: s.command}
		for range mostServers - 1 {
			port, err := freePort()
			if err != nil {
				return nil, err
			}
			several.further = append(several.further, port)
		}
		systems = append(systems, several)
	}
	if len(systems) == 0 {
		return nil, errNothing
	}
	return systems, nil
}

func (s *serversOnEtcd) Name() string { return s.name }

// Processes implements system.
func (s *serversOnEtcd) Processes(dir string) ([]process, error) {
	processes, err := s.kubeSystem.Processes(dir)
	if err != nil {
		return nil, err
	}
	etcd, flags := processes[0], processes[1].args
	processes = []process{etcd}
	for i, port := range s.all() {
		args := slices.Concat(s.command, flags)
		for j, arg := range args {
			if strings.HasPrefix(arg, "--secure-port=") {
				args[j] = "--secure-port=" + port
			}
		}
		processes = append(processes, process{name: fmt.Sprintf("%s-%d", filepath.Base(s.apiserver), i+1), path: s.apiserver, args: args})
	}
	return processes, nil
}

// all returns the ports of all servers.
func (s *serversOnEtcd) all() []string { return append([]string{s.port}, s.further...) }

// measureServers measures reads and writes by the same clients of one, two and three of the
// servers: what they take of the processors, servers and etcd. On one machine the rates show
// little, because the servers share its processors.
func measureServers(ctx context.Context, t *trial) error {
	config, err := t.config()
	if err != nil {
		return err
	}
	ofServer := make([][]*client, mostServers)
	for i, port := range t.system.(*serversOnEtcd).all() {
		own := rest.CopyConfig(config)
		own.Host = "https://" + net.JoinHostPort("127.0.0.1", port)
		if err := t.instance.poll(ctx, ready(own.Host)); err != nil {
			return err
		}
		if ofServer[i], err = dial(ctx, own, serversClients); err != nil {
			return err
		}
		defer closeAll(ofServer[i])
	}
	if err := t.seedPods(ctx, ofServer[0], serversPods); err != nil {
		return err
	}
	for n := 1; n <= mostServers; n++ {
		clients := make([]*client, serversClients)
		for i := range clients {
			clients[i] = ofServer[i%n][i]
		}
		if err := t.measureSharedServers(ctx, n, clients); err != nil {
			return fmt.Errorf("%s: %w", plural(n, "server"), err)
		}
	}
	return nil
}

// measureSharedServers measures clients of n servers.
func (t *trial) measureSharedServers(ctx context.Context, n int, clients []*client) error {
	pods, maps := podKind(), configMapKind()
	if err := t.namespace(ctx, clients[0], verbNamespace); err != nil {
		return err
	}
	list := whole(request{method: http.MethodGet, path: pods.collection(listNamespace), accept: protobufType})
	for _, work := range []struct {
		name      string
		times     int
		operation func(ctx context.Context, c *client, i int) error
	}{
		{"get", t.sizes.Operations[16], func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, pods.get(listNamespace, podName(i%serversPods)))
		}},
		{"list", 20 * t.sizes.Lists, func(ctx context.Context, c *client, _ int) error { return list(ctx, c) }},
		{"create", t.sizes.Operations[16], func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, maps.create(verbNamespace, fmt.Sprintf("of-%d-servers-%d", n, i), 0))
		}},
	} {
		if _, err := t.load(ctx, clients, 2*len(clients), func(ctx context.Context, c *client, i int) error {
			return work.operation(ctx, c, work.times+i) // to warm up
		}); err != nil {
			return err
		}
		etcd := t.instance.group("etcd")
		before, err := cpuTime(etcd)
		if err != nil {
			return err
		}
		o, err := t.load(ctx, clients, work.times, work.operation)
		if err != nil {
			return err
		}
		after, err := cpuTime(etcd)
		if err != nil {
			return err
		}
		ofEtcd := outcome{operations: o.operations, cpu: after - before}
		name := fmt.Sprintf("%s on one etcd, %s", plural(n, "server"), work.name)
		t.record(higher(name, "rate", "/s"), o.perSecond())
		t.record(lower(name, "processor", "s/1000"), o.cpuPerThousand())
		t.record(lower(name, "etcd's part", "s/1000"), ofEtcd.cpuPerThousand())
	}
	return nil
}
