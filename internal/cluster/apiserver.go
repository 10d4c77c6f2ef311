package cluster

import (
	"context"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/component"
)

// apiServer is the cluster's API server.
type apiServer struct {
	component.Task
	options *options.Options
	keys    *certificates
	etcd    *embeddedEtcd // nil with an external etcd
	ready   chan struct{} // closed when it is
	// forPods means that pods are to reach it at the node's bridge.
	forPods bool
	// listeners is nil unless it listens at a loopback address, and forPods is set.
	listeners *listeners
}

// Name implements component.Component.
func (*apiServer) Name() string { return "API server" }

// Start implements component.Component.
func (s *apiServer) Start(ctx context.Context) error {
	s.useCertificates()
	if s.etcd != nil {
		s.useEmbeddedEtcd()
	}
	if err := s.listen(); err != nil {
		return err
	}
	server, err := apiserver.New(s.options)
	if err != nil {
		return err
	}
	s.ready = make(chan struct{})
	s.Go(ctx, s.Name(), func(ctx context.Context) error { return server.Run(ctx, func() { close(s.ready) }) })
	return nil
}

// listen opens the port if further ones are to be opened for pods. Otherwise the server
// opens it.
func (s *apiServer) listen() error {
	o := s.options.SecureServing
	if !s.forPods || !o.BindAddress.IsLoopback() || s.options.Network.AdvertiseAddress != nil || o.PermitPortSharing || o.PermitAddressSharing {
		return nil
	}
	first, err := openPort(o)
	if err != nil {
		return err
	}
	s.listeners = listenAt(first)
	o.Listener = s.listeners
	return nil
}

// Ready implements component.Component.
func (s *apiServer) Ready(ctx context.Context) (string, error) {
	select {
	case <-s.ready:
		return serverURL(s.options), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Stop implements component.Component. It returns when all requests have ended.
// A server that is not ready has acknowledged nothing and cannot be stopped: its
// post-start hooks would take that for a failure and end the process with a
// stack trace.
func (s *apiServer) Stop() error {
	select {
	case <-s.ready:
		s.Task.Stop()
		return nil
	default:
		return component.ErrStillStarting
	}
}

func (s *apiServer) useEmbeddedEtcd() {
	member := s.etcd.member
	s.options.Etcd.Servers = member.Endpoints()
	s.options.Etcd.Client, s.options.Etcd.Check = member.Client(), member.Check
	s.options.SharedStorage = false
}

// useCertificates sets the options that name files of keys and certificates,
// unless the user has set those that can be set.
func (s *apiServer) useCertificates() {
	o, keys := s.options, s.keys
	o.SecureServing.ServerCert.CertKey.CertFile = keys.Certificate("apiserver")
	o.SecureServing.ServerCert.CertKey.KeyFile = keys.Key("apiserver")
	o.Authentication.ClientCAFile = keys.Certificate("ca")
	if header := &o.Authentication.RequestHeader; header.ClientCAFile == "" {
		header.ClientCAFile = keys.Certificate("front-proxy-ca")
		header.AllowedNames = []string{pki.FrontProxyClient}
	}
	if accounts := &o.ServiceAccounts; accounts.SigningKeyFile == "" {
		accounts.SigningKeyFile = keys.Key("sa")
		accounts.KeyFiles = append(accounts.KeyFiles, keys.PublicKey("sa"))
	}
	if o.ProxyClientCertFile == "" {
		o.ProxyClientCertFile = keys.Certificate("front-proxy-client")
		o.ProxyClientKeyFile = keys.Key("front-proxy-client")
	}
	if agents := &o.Agents; agents.CAFile == "" {
		agents.CAFile = keys.Certificate("ca")
	}
	if agents := &o.Agents; agents.CertFile == "" {
		agents.CertFile, agents.KeyFile = keys.Certificate("apiserver-kubelet-client"), keys.Key("apiserver-kubelet-client")
	}
}
