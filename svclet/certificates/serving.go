package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/clock"
)

// ServingOptions configure the serving certificate of an agent.
type ServingOptions struct {
	Node string
	// API is how the API server is reached.
	API *rest.Config
	// Addresses returns the node's addresses, which the certificate contains. A change
	// of them is a reason to request another.
	Addresses func() []corev1.NodeAddress
	// Dir is --cert-dir; CertFile and KeyFile are used until the first certificate is
	// issued. They may be empty.
	Dir, CertFile, KeyFile string
	Clock                  clock.PassiveClock
}

// Serving is the agent's serving certificate that the API server signs, once an
// administrator has approved the request.
type Serving struct {
	manager certificate.Manager
	metrics metrics
}

// NewServing returns the serving certificate. It requests none before Run.
func NewServing(o ServingOptions) (*Serving, error) {
	store, err := certificate.NewFileStore(servingPair, o.Dir, o.Dir, o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	client, err := requests(o.API)
	if err != nil {
		return nil, err
	}
	s := &Serving{}
	s.metrics = newMetrics("server", "server_expiration_renew_errors", s.current, o.Clock)
	s.manager, err = certificate.NewManager(&certificate.Config{
		Name:                    "serving certificate",
		ClientsetFn:             func(*tls.Certificate) (kubernetes.Interface, error) { return client, nil },
		GetTemplate:             func() *x509.CertificateRequest { return servingTemplate(o.Node, o.Addresses()) },
		SignerName:              certificatesv1.KubeletServingSignerName,
		GetUsages:               certificate.DefaultKubeletServingGetUsages,
		CertificateStore:        store,
		CertificateRotation:     s.metrics.age,
		CertificateRenewFailure: s.metrics.failures,
	})
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return s, nil
}

// Run requests and renews the certificate until ctx is done.
func (s *Serving) Run(ctx context.Context) {
	s.manager.Start()
	<-ctx.Done()
	s.manager.Stop()
}

func (s *Serving) current() *tls.Certificate { return s.manager.Current() }

// ErrNoServingCertificate is the error of connections before the first certificate is
// issued.
var ErrNoServingCertificate = errors.New("no serving certificate available for the agent: approve its request with 'svc kubectl certificate approve'")

// Get returns the certificate in use, for tls.Config.
func (s *Serving) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := s.current(); pair != nil {
		return pair, nil
	}
	return nil, ErrNoServingCertificate
}

// Metrics returns the metrics of the certificate.
func (s *Serving) Metrics() []prometheus.Collector { return s.metrics.collectors() }
