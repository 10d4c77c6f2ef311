package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/connection"
	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/certificates"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/nodeconfig"
)

// checkSources returns an error if the settings name no source of pods, or a
// connection file that cannot be read.
func checkSources(s *config.Settings) error {
	if c := s.Configuration; s.Svcconfig == "" && c.StaticPodPath == "" && c.StaticPodURL == "" {
		return errors.New("there is no source of pods: give --svcconfig, --pod-manifest-path (staticPodPath) or --manifest-url (staticPodURL)")
	}
	if s.Svcconfig == "" || s.BootstrapSvcconfig != "" {
		return nil
	}
	_, err := readConnection(s)
	return err
}

// readConnection returns how the connection file reaches the API server.
func readConnection(s *config.Settings) (*rest.Config, error) {
	api, err := connection.Read(s.Svcconfig)
	if err != nil {
		return nil, fmt.Errorf("--svcconfig: %w", err)
	}
	if qps, burst, limited := s.RateLimit(); limited {
		api.QPS, api.Burst = qps, burst
	}
	api.ContentType = s.Configuration.ContentType
	return api, nil
}

// connect sets how the agent reaches the API server; not at all in standalone mode.
// With a bootstrap kubeconfig it waits for the first client certificate.
func connect(ctx context.Context, s *config.Settings, c *agent.Config) error {
	if s.Svcconfig == "" {
		return nil
	}
	name, err := nodeconfig.HostName(s.HostnameOverride)
	if err != nil {
		return err
	}
	if s.BootstrapSvcconfig != "" {
		first := certificates.Bootstrap{Node: name, File: s.BootstrapSvcconfig, Connection: s.Svcconfig, Dir: s.CertDir, Clock: clock.RealClock{}}
		if err := first.Run(ctx); err != nil {
			return err
		}
	}
	if c.API, err = readConnection(s); err != nil || !s.Configuration.RotateCertificates {
		return err
	}
	c.ClientCertificate, err = certificates.NewClient(certificates.ClientOptions{
		Node: name, API: c.API, Bootstrap: s.BootstrapSvcconfig, Dir: s.CertDir, Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	c.API = c.ClientCertificate.API()
	return nil
}
