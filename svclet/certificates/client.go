package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/fleetaddress"
)

// ClientOptions configure the client certificate of an agent.
type ClientOptions struct {
	Node string
	// API is how the API server is reached, with the certificate of the connection file.
	API *rest.Config
	// Bootstrap is the bootstrap kubeconfig, with which a certificate is requested if the
	// agent has none that the API server accepts; empty for none.
	Bootstrap string
	// Dir is --cert-dir.
	Dir   string
	Clock clock.PassiveClock
}

// Client is the agent's client certificate, which it renews.
type Client struct {
	o         ClientOptions
	store     certificate.Store
	bootstrap *rest.Config // nil without one
	transport *rotating
	metrics   metrics
	rejected  chan struct{}

	mu      sync.Mutex
	manager certificate.Manager
	// last is the newest certificate that has been in use.
	last *tls.Certificate
	// replaced is when a rejected certificate was last given up.
	replaced time.Time
	// bootstrapTried is whether the previous request for another certificate was made
	// with the bootstrap kubeconfig.
	bootstrapTried bool
}

// rejectedPause is the least time between two requests with the bootstrap kubeconfig
// because of a rejected certificate.
const rejectedPause = time.Minute

// NewClient returns the client certificate. It requests none before Run.
func NewClient(o ClientOptions) (*Client, error) {
	store, err := certificate.NewFileStore(clientPair, o.Dir, o.Dir, o.API.CertFile, o.API.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	c := &Client{o: o, store: store, rejected: make(chan struct{}, 1)}
	if o.Bootstrap != "" {
		if c.bootstrap, err = clientcmd.BuildConfigFromFlags("", o.Bootstrap); err != nil {
			return nil, fmt.Errorf("--bootstrap-svcconfig: %s: %w", o.Bootstrap, err)
		}
	}
	c.metrics = newMetrics("client", "certificate_manager_client_expiration_renew_errors", c.Current, o.Clock)
	if c.manager, err = c.newManager(store, o.API.CertData, o.API.KeyData); err != nil {
		return nil, err
	}
	if c.transport, err = newRotating(o.API, c.Current, c.reject); err != nil {
		return nil, err
	}
	return c, nil
}

// API returns how the API server is reached: each new connection uses the certificate
// that is in use then. Requests in flight keep their connections.
func (c *Client) API() *rest.Config {
	api := rest.CopyConfig(c.o.API)
	api.TLSClientConfig = rest.TLSClientConfig{}
	api.Transport = c.transport
	return api
}

// Current returns the certificate in use: the newest one, or nil if that has expired.
func (c *Client) Current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pair := c.manager.Current(); pair != nil {
		c.last = pair
	}
	if c.last == nil || c.o.Clock.Now().After(c.last.Leaf.NotAfter) {
		return nil
	}
	return c.last
}

// Run renews the certificate until ctx is done.
func (c *Client) Run(ctx context.Context) {
	defer c.transport.CloseIdleConnections()
	logger := klog.FromContext(ctx)
	c.manager.Start()
	defer func() { c.manager.Stop() }() // the one in use then
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.rejected:
		}
		logger.Info("API server rejects the client certificate, requesting another with the bootstrap kubeconfig", "node", c.o.Node)
		next, err := c.newManager(empty{c.store}, nil, nil)
		if err != nil {
			logger.Error(err, "Failed to request client certificate, will retry")
			continue
		}
		c.manager.Stop()
		c.mu.Lock()
		c.manager = next
		c.mu.Unlock()
		next.Start()
	}
}

// Metrics returns the metrics of the certificate.
func (c *Client) Metrics() []prometheus.Collector { return c.metrics.collectors() }

// newManager returns a manager of the certificate in a store. Without one it uses the
// pair of a kubeconfig, if there is one, and requests another at once.
func (c *Client) newManager(store certificate.Store, certPEM, keyPEM []byte) (certificate.Manager, error) {
	request := newClientRequest(c.o.Node, c.o.API.Host)
	manager, err := certificate.NewManager(&certificate.Config{
		Name:                    "client certificate",
		ClientsetFn:             c.client,
		Template:                &x509.CertificateRequest{Subject: request.subject},
		SignerName:              request.signer,
		GetUsages:               certificate.DefaultKubeletClientGetUsages,
		BootstrapCertificatePEM: certPEM,
		BootstrapKeyPEM:         keyPEM,
		CertificateStore:        store,
		CertificateRotation:     c.metrics.age,
		CertificateRenewFailure: c.metrics.failures,
	})
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return manager, nil
}

// client returns the client that requests certificates: with the current certificate
// or, without one, with the bootstrap kubeconfig or else as the connection file says.
//
// A rejected certificate and the bootstrap kubeconfig alternate: the rejection may have
// been a passing fault of the API server, and the bootstrap token may have expired.
func (c *Client) client(current *tls.Certificate) (kubernetes.Interface, error) {
	switch {
	case current != nil || c.tryLast():
		return requests(c.API())
	case c.bootstrap != nil:
		return requests(c.bootstrap)
	}
	return requests(c.o.API)
}

// tryLast reports whether the next request uses the rejected certificate, if that has
// not expired.
func (c *Client) tryLast() bool {
	usable := c.bootstrap != nil && c.Current() != nil
	c.mu.Lock()
	defer c.mu.Unlock()
	last := usable && c.bootstrapTried
	c.bootstrapTried = !last
	return last
}

// requests returns a client of certificate signing requests. Their content type is
// JSON, whatever that of other requests is. For a fleet they are its host's.
func requests(api *rest.Config) (kubernetes.Interface, error) {
	api = rest.CopyConfig(api)
	if host, _, ok := fleetaddress.Split(api.Host); ok {
		api.Host = host
	}
	api.ContentType, api.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return kubernetes.NewForConfig(api)
}

// reject is called when the API server has answered a request with 401. The
// certificate stays in use until there is another.
func (c *Client) reject() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Clock.Now()
	waits := c.manager.Current() == nil // for another certificate
	if c.bootstrap == nil || waits || !c.replaced.IsZero() && now.Sub(c.replaced) < rejectedPause {
		return
	}
	c.replaced = now
	select {
	case c.rejected <- struct{}{}:
	default:
	}
}

// empty is a store whose certificate is not used any more.
type empty struct{ certificate.Store }

// Current implements certificate.Store.
func (empty) Current() (*tls.Certificate, error) {
	none := certificate.NoCertKeyError("the API server has rejected the certificate")
	return nil, &none
}
