// Package pki owns the directory of keys and certificates of `svc up`: it makes
// them at the first start, checks them at every other one, and renews them while
// the server runs. They are
//
//	ca                        the cluster's authority: servers and clients
//	apiserver                 the API server's serving certificate
//	apiserver-kubelet-client  the API server's client certificate for nodes
//	admin                     a client certificate in system:masters
//	controller-manager        the controllers' client certificate
//	svc-up                    the client certificate of `svc up` for objects of this machine
//	node                      this machine's client certificate, if it is a node
//	node-serving              its serving certificate
//	front-proxy-ca            the request-header authority, which signs the aggregator's certificate
//	front-proxy-client        the aggregator's client certificate
//	sa                        the key pair that signs service account tokens
//
// each as <name>.crt and <name>.key (sa.pub and sa.key). The names are those of
// kubeadm, so that users may bring some of their own. Keys are ECDSA P-256. A
// renewal keeps the key: one rename replaces a certificate, and a certificate always
// matches its key. The renewal of an authority keeps its encoded name and its key
// identifier, too: certificates that it has signed stay valid.
//
// The kubeconfigs of the administrator, the controllers and the node contain
// these certificates, and are written again when they change.
package pki

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// renewalInterval is how often Run checks whether certificates must be renewed. It
// bounds how long a new address of the machine is missing in the serving
// certificate.
const renewalInterval = time.Hour

// Config is where the files are and what they contain.
type Config struct {
	// Dir holds the keys and certificates. It is created if it does not exist, and
	// other users have no access to it.
	Dir string
	// Names returns the DNS names and IP addresses at which clients reach the
	// server, beside those of the kubernetes service: MachineNames, for example. It
	// is called at every renewal.
	Names func() ([]string, error)
	// ServiceIPs are the cluster IPs of the kubernetes service, first in each
	// service range.
	ServiceIPs []net.IP
	// ClusterDomain is the DNS domain of services; empty means cluster.local.
	ClusterDomain string

	// NodeName is the name of this machine's node; empty if it has none.
	NodeName string

	// ConnectionFile, ControllersFile and NodeFile are the paths of the kubeconfigs
	// of the administrator, the controllers and the node; an empty path writes no
	// file. Server is the URL in them.
	ConnectionFile, ControllersFile, NodeFile, Server string

	// Clock is the clock by which certificates are made and checked; nil means the
	// machine's.
	Clock clock.WithTicker
}

// PKI is a complete and valid directory of keys and certificates.
type PKI struct {
	cfg Config

	mu sync.Mutex // one renewal at a time
}

// Open makes the missing files of cfg.Dir, renews certificates that expire soon,
// and writes the kubeconfigs. An error names the file at fault and the remedy; a
// file that Open cannot read is never overwritten.
func Open(cfg Config) (*PKI, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.ClusterDomain == "" {
		cfg.ClusterDomain = "cluster.local"
	}
	if err := makePrivateDir(cfg.Dir); err != nil {
		return nil, err
	}
	p := &PKI{cfg: cfg}
	if _, err := p.renew(); err != nil {
		return nil, err
	}
	return p, nil
}

// Run renews certificates before they expire, and the serving certificate when the
// machine gets a new name or address, until ctx is done. It logs errors and
// retries after renewalInterval.
func (p *PKI) Run(ctx context.Context) {
	tick := p.cfg.Clock.NewTicker(renewalInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if err := p.Renew(ctx); err != nil {
			klog.FromContext(ctx).WithName("pki").Error(err, "Failed to renew certificates, will retry", "retryAfter", renewalInterval)
		}
	}
}

// Renew renews now what Run would renew: for a caller that has given the machine another
// address.
func (p *PKI) Renew(ctx context.Context) error {
	renewed, err := p.renew()
	for _, r := range renewed {
		klog.FromContext(ctx).WithName("pki").Info("Renewed certificate", "file", r.file, "reason", r.reason)
	}
	return err
}

// Certificate returns the path of a certificate by its name in the package comment.
func (p *PKI) Certificate(name string) string { return filepath.Join(p.cfg.Dir, name+".crt") }

// Key returns the path of a private key by its name in the package comment.
func (p *PKI) Key(name string) string { return filepath.Join(p.cfg.Dir, name+".key") }

// PublicKey returns the path of the public key of "sa".
func (p *PKI) PublicKey(name string) string { return filepath.Join(p.cfg.Dir, name+".pub") }

// The lifetimes of certificates, and how long before their expiry they are renewed.
// An authority is renewed so early that no leaf outlives the certificate that it
// was signed under.
const (
	day               = 24 * time.Hour
	authorityLifetime = 10 * 365 * day
	authorityRenewal  = 2 * 365 * day
	leafLifetime      = 365 * day
	leafRenewal       = 90 * day
)

// renewal is a certificate that renew has made, and why.
type renewal struct {
	file, reason string
}

// renew makes and renews all files that need it. It stops at the first error, and
// returns the renewals before it.
func (p *PKI) renew() ([]renewal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names, err := p.servingNames()
	if err != nil {
		return nil, err
	}
	var done []renewal
	ensure := func(w want, by *pair) (*pair, error) {
		got, reason, err := p.ensure(w, by)
		if reason != "" && err == nil {
			done = append(done, renewal{p.Certificate(w.name), reason})
		}
		return got, err
	}
	ca, err := ensure(authority("ca", "svc-ca"), nil)
	if err != nil {
		return done, err
	}
	for _, leaf := range p.leaves(names) {
		made, err := ensure(leaf.want, ca)
		if err != nil {
			return done, err
		}
		if err := p.writeConnectionFile(leaf.connectionFile, ca, made); err != nil {
			return done, err
		}
	}
	frontProxyCA, err := ensure(authority("front-proxy-ca", "svc-front-proxy-ca"), nil)
	if err != nil {
		return done, err
	}
	if _, err := ensure(client("front-proxy-client", FrontProxyClient), frontProxyCA); err != nil {
		return done, err
	}
	return done, p.ensureKeyPair("sa")
}

// leaf is a certificate that the cluster's authority signs, and the kubeconfig that
// contains it, if any.
type leaf struct {
	want           want
	connectionFile string
}

func (p *PKI) leaves(servingNames []string) []leaf {
	leaves := []leaf{
		{want: server("apiserver", "kube-apiserver", servingNames)},
		{client("admin", "svc-admin", user.SystemPrivilegedGroup), p.cfg.ConnectionFile},
		{client("controller-manager", ControllersClient), p.cfg.ControllersFile},
		{want: client("svc-up", UpClient)},
		{want: client("apiserver-kubelet-client", NodesClient)},
	}
	if name := p.cfg.NodeName; name != "" {
		leaves = append(leaves,
			leaf{client("node", nodeUser(name), user.NodesGroup), p.cfg.NodeFile},
			leaf{want: server("node-serving", nodeUser(name), append([]string{name}, p.notAPIServers(servingNames)...))},
		)
	}
	return leaves
}

// nodeUser returns the user name of a node:
// https://kubernetes.io/docs/reference/access-authn-authz/node
func nodeUser(name string) string { return "system:node:" + name }

// ControllersClient is the common name of the controllers' client certificate. No
// default role is bound to this user.
const ControllersClient = "system:svc-controller-manager"

// UpClient is the common name of the client certificate of `svc up` itself.
const UpClient = "system:svc-up"

// NodesClient is the common name of the API server's client certificate for nodes:
// the user to whom kubeadm grants rights there.
const NodesClient = "kube-apiserver-kubelet-client"

// FrontProxyClient is the common name of the aggregator's client certificate,
// for --requestheader-allowed-names.
const FrontProxyClient = "front-proxy-client"

func authority(name, commonName string) want {
	return want{name: name, lifetime: authorityLifetime, renewal: authorityRenewal,
		template: x509.Certificate{
			Subject:               pkix.Name{CommonName: commonName},
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
			IsCA:                  true,
			BasicConstraintsValid: true,
		}}
}

func server(name, commonName string, names []string) want {
	w := want{name: name, lifetime: leafLifetime, renewal: leafRenewal,
		template: x509.Certificate{
			Subject:               pkix.Name{CommonName: commonName},
			KeyUsage:              x509.KeyUsageDigitalSignature,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			BasicConstraintsValid: true,
		}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			w.template.IPAddresses = append(w.template.IPAddresses, ip)
		} else {
			w.template.DNSNames = append(w.template.DNSNames, name)
		}
	}
	return w
}

func client(name, user string, groups ...string) want {
	return want{name: name, lifetime: leafLifetime, renewal: leafRenewal,
		template: x509.Certificate{
			Subject:               pkix.Name{CommonName: user, Organization: groups},
			KeyUsage:              x509.KeyUsageDigitalSignature,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			BasicConstraintsValid: true,
		}}
}

const apiServerName = "kubernetes.default.svc"

// apiServerNames returns the names of the kubernetes Service, which only API servers have.
func (p *PKI) apiServerNames() []string {
	return []string{"kubernetes", "kubernetes.default", apiServerName, apiServerName + "." + p.cfg.ClusterDomain}
}

// notAPIServers returns those of names that a node may have: its certificate must
// not be valid for an API server.
func (p *PKI) notAPIServers(names []string) []string {
	reserved := p.apiServerNames()
	for _, ip := range p.cfg.ServiceIPs {
		reserved = append(reserved, ip.String())
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(reserved, name) })
}

// servingNames returns all names and addresses of the serving certificate, sorted.
func (p *PKI) servingNames() ([]string, error) {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, p.apiServerNames()...)
	for _, ip := range p.cfg.ServiceIPs {
		names = append(names, ip.String())
	}
	if p.cfg.Names != nil {
		own, err := p.cfg.Names()
		if err != nil {
			return nil, fmt.Errorf("find the names of this machine: %w", err)
		}
		names = append(names, own...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MachineNames returns the machine's host name and the addresses of its network
// interfaces, without loopback and link-local ones.
func MachineNames() ([]string, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the network interfaces: %w", err)
	}
	names := []string{host}
	for _, addr := range addrs {
		if ipNet, ok := addr.(*net.IPNet); ok && ipNet.IP.IsGlobalUnicast() {
			names = append(names, ipNet.IP.String())
		}
	}
	return names, nil
}

// pair is a certificate with its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}
