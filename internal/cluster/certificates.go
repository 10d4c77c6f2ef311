package cluster

import (
	"context"
	"fmt"
	"net"

	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/component"
)

// certificates are the cluster's keys and certificates, which are renewed while
// it runs.
type certificates struct {
	component.Task
	cluster *Cluster
	*pki.PKI
}

// Name implements component.Component.
func (*certificates) Name() string { return "keys and certificates" }

// Start implements component.Component.
func (c *certificates) Start(ctx context.Context) error {
	dir, server := c.cluster.Dir, c.cluster.Server
	cidrs, err := server.Network.ServiceCIDRs()
	if err != nil {
		return err
	}
	config := pki.Config{
		Dir:   dir.PKI(),
		Names: c.names,

		ConnectionFile:  dir.AdminFile(),
		ControllersFile: dir.ControllersFile(),
		NodeName:        c.nodeName(),
		NodeFile:        dir.NodeFile(),
		Server:          serverURL(server),
		Clock:           c.cluster.Clock,
	}
	for _, cidr := range cidrs {
		config.ServiceIPs = append(config.ServiceIPs, net.IP(cidr.Addr().Next().AsSlice()))
	}
	if c.PKI, err = pki.Open(config); err != nil {
		return fmt.Errorf("--data-dir: %w", dir.ExplainFull(err))
	}
	c.Go(ctx, c.Name(), func(ctx context.Context) error { c.Run(ctx); return nil })
	return nil
}

// Ready implements component.Component.
func (c *certificates) Ready(context.Context) (string, error) { return c.cluster.Dir.PKI(), nil }

// Stop implements component.Component.
func (c *certificates) Stop() error { c.Task.Stop(); return nil }

// names returns the names and addresses of the serving certificate that depend
// on the machine and the command line.
func (c *certificates) names() ([]string, error) {
	names, err := pki.MachineNames()
	if err != nil {
		return nil, err
	}
	o := c.cluster.Server
	for _, ip := range []net.IP{o.SecureServing.BindAddress, o.Network.AdvertiseAddress} {
		if ip != nil && !ip.IsUnspecified() {
			names = append(names, ip.String())
		}
	}
	if name := o.Network.ExternalHostname; name != "" {
		names = append(names, name)
	}
	return names, nil
}

// nodeName is the name in the node's certificates, empty without a node.
func (c *certificates) nodeName() string {
	if c.cluster.node == nil {
		return ""
	}
	return c.cluster.node.name
}

// client returns how a client with the certificate of this name reaches the API
// server. It names files, because clients read renewed certificates from them. Responses
// are not compressed: both sides are in this process.
func (c *certificates) client(name string) *rest.Config {
	return &rest.Config{
		Host:               serverURL(c.cluster.Server),
		DisableCompression: true,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   c.Certificate("ca"),
			CertFile: c.Certificate(name),
			KeyFile:  c.Key(name),
		},
	}
}
