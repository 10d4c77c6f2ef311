// Package pki keeps the keys and certificates of `svc up` in a directory: it
// makes them at the first start, checks them at every other, and renews them
// while the server runs. Kept are
//
//	ca                        the cluster's authority: servers and clients
//	apiserver                 the API server's serving certificate
//	apiserver-kubelet-client  the API server's client certificate towards nodes
//	admin                     a client certificate in system:masters
//	controller-manager        the controllers' client certificate
//	node                      this machine's client certificate, if it is a node
//	node-serving              its serving certificate
//	front-proxy-ca            the request-header authority: vouches for the aggregator
//	front-proxy-client        the aggregator's client certificate
//	sa                        the key pair that signs service account tokens
//
// each as <name>.crt and <name>.key (sa.pub and sa.key), under the names that
// kubeadm gives them, so that a user may bring some of his own. Keys are ECDSA
// P-256. A renewal keeps the key: a certificate is then replaced by one rename,
// a certificate and its key always match, and what an old authority signed
// stays valid under its renewed certificate.
//
// The connection files of the administrator, of the controllers and of the node
// (kubeconfigs) are derived from these and follow them.
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

// renewalInterval is how often Run looks for what has to be renewed. It bounds
// how long a new address of the machine is missing from the serving
// certificate.
const renewalInterval = time.Hour

// Config says where the files are and what they say.
type Config struct {
	// Dir holds the keys and certificates. It is created, and closed to other
	// users, as needed.
	Dir string
	// Names returns the DNS names and IP addresses under which the server can
	// be reached, beside those of the kubernetes service; MachineNames, say. It
	// is asked again at every renewal.
	Names func() ([]string, error)
	// ServiceIPs are the cluster IPs of the kubernetes service, first in each
	// service range.
	ServiceIPs []net.IP
	// ClusterDomain is the DNS domain of services; empty means cluster.local.
	ClusterDomain string

	// NodeName is that of this machine's node; empty if it is none.
	NodeName string

	// ConnectionFile is where the administrator's kubeconfig goes,
	// ControllersFile where that of the controllers goes, NodeFile where that of
	// the node goes, and Server the URL that they name. An empty name writes no
	// file.
	ConnectionFile, ControllersFile, NodeFile, Server string

	// Clock is the time that certificates are made for and checked at; nil
	// means the machine's.
	Clock clock.WithTicker
}

// PKI is a directory whose content is complete and valid.
type PKI struct {
	cfg Config

	mu sync.Mutex // one renewal at a time
}

// Open makes what is missing in cfg.Dir, renews what is near its end, and
// writes the connection file. An error names the file at fault and the remedy;
// a file that Open cannot read is never overwritten.
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

// Run renews certificates before they end, and the serving certificate when
// the machine gets a new name or address, until ctx is done. What it fails to
// do it logs and tries again after an hour.
func (p *PKI) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("pki")
	tick := p.cfg.Clock.NewTicker(renewalInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		renewed, err := p.renew()
		for _, r := range renewed {
			logger.Info("Renewed a certificate", "file", r.file, "reason", r.reason)
		}
		if err != nil {
			logger.Error(err, "Could not renew all certificates; trying again", "after", renewalInterval)
		}
	}
}

// Certificate is the path of a certificate by its name in the package comment.
func (p *PKI) Certificate(name string) string { return filepath.Join(p.cfg.Dir, name+".crt") }

// Key is the path of a private key by its name in the package comment.
func (p *PKI) Key(name string) string { return filepath.Join(p.cfg.Dir, name+".key") }

// PublicKey is the path of the public key of "sa".
func (p *PKI) PublicKey(name string) string { return filepath.Join(p.cfg.Dir, name+".pub") }

// The lifetimes and the ends that count as near. An authority is renewed early
// enough that no leaf outlives the certificate it was signed under.
const (
	day               = 24 * time.Hour
	authorityLifetime = 10 * 365 * day
	authorityRenewal  = 2 * 365 * day
	leafLifetime      = 365 * day
	leafRenewal       = 90 * day
)

// renewal is what renew has done.
type renewal struct {
	file, reason string
}

// renew brings the whole directory up to date. It goes on as far as one
// authority's failure allows, and returns the first error.
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

// leaf is a certificate that the cluster's authority signs, and the connection
// file of who has it, if there is one.
type leaf struct {
	want           want
	connectionFile string
}

func (p *PKI) leaves(servingNames []string) []leaf {
	leaves := []leaf{
		{want: server("apiserver", "kube-apiserver", servingNames)},
		{client("admin", "svc-admin", user.SystemPrivilegedGroup), p.cfg.ConnectionFile},
		{client("controller-manager", ControllersClient), p.cfg.ControllersFile},
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

// nodeUser is as whom a node comes to the API server:
// https://kubernetes.io/docs/reference/access-authn-authz/node
func nodeUser(name string) string { return "system:node:" + name }

// ControllersClient is the common name of the controllers' client certificate:
// the user that Kubernetes' bootstrap policy names.
const ControllersClient = "system:kube-controller-manager"

// NodesClient is the common name of the API server's client certificate towards
// nodes: the user to whom kubeadm gives rights there.
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

// apiServerNames are those by which pods know API servers, and nobody else has.
func (p *PKI) apiServerNames() []string {
	return []string{"kubernetes", "kubernetes.default", apiServerName, apiServerName + "." + p.cfg.ClusterDomain}
}

// notAPIServers are those of names that an agent may have: it must not pass for
// an API server.
func (p *PKI) notAPIServers(names []string) []string {
	theirs := p.apiServerNames()
	for _, ip := range p.cfg.ServiceIPs {
		theirs = append(theirs, ip.String())
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(theirs, name) })
}

// servingNames are all names and addresses of the serving certificate, sorted.
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
