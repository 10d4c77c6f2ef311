package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/certificates"
	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/server"
)

// useCertificates sets where the server's certificate is from, and returns what renews
// it: the API server with serverTLSBootstrap, else the configured files, or a
// self-signed pair for the node's addresses.
func useCertificates(ctx context.Context, base common, o *server.Options, n *node.Node) (tasks, error) {
	c := base.Configuration
	switch {
	case c.ServerTLSBootstrap && base.API != nil:
		serving, err := certificates.NewServing(certificates.ServingOptions{
			Node: base.name, API: base.API, Dir: base.CertDir, CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, Clock: base.Clock,
			Addresses: func() []corev1.NodeAddress { return n.Object().Status.Addresses },
		})
		if err != nil {
			return tasks{}, err
		}
		o.Serving = serving.Get
		base.metrics.Register(serving.Metrics()...)
		return tasks{parts: []func(context.Context){serving.Run}}, nil
	case c.TLSCertFile == "":
		addresses, err := n.Addresses(ctx)
		if err != nil {
			klog.FromContext(ctx).Info("Self-signed certificate has no addresses", "reason", err.Error())
		}
		_, o.Addresses = certificates.Hosts(addresses)
	}
	return tasks{}, nil
}

// renewal is what renews the client certificate.
func renewal(base common) tasks {
	if base.ClientCertificate == nil {
		return tasks{}
	}
	base.metrics.Register(base.ClientCertificate.Metrics()...)
	return tasks{parts: []func(context.Context){base.ClientCertificate.Run}}
}
