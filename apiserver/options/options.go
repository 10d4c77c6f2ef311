// Package options are the flags of the API server. Their names are those of
// the specification and, where it is silent, of kube-apiserver.
package options

import (
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"svc.dev/svc/apiserver/admission/noderestriction"
	"svc.dev/svc/apiserver/admission/priority"
	"svc.dev/svc/apiserver/admission/tolerationseconds"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/storage"
)

// Options are the API server's settings. New fills in the defaults; the zero
// value of a field with a default is not meant.
type Options struct {
	SecureServing   *genericoptions.SecureServingOptions
	Etcd            storage.Config
	Authentication  Authentication
	ServiceAccounts ServiceAccounts
	Authorization   Authorization
	Admission       *genericoptions.AdmissionOptions
	// EventTTL is how long an event is kept after its last change.
	EventTTL time.Duration
	// AllowPrivileged lets containers be privileged.
	AllowPrivileged bool
	// Tolerations are for how long pods stay on unready nodes by default.
	Tolerations *tolerationseconds.Defaults
	Audit       *genericoptions.AuditOptions
	Features    Features
	Requests    Requests
	Network     Network
	Agents      Agents

	// Metrics are what /metrics shows; nil means those of the libraries.
	Metrics prometheus.Gatherer
	// RuntimeConfig turns API versions and resources on and off.
	RuntimeConfig map[string]string
	// Release is the Kubernetes release whose API is served.
	Release release.Release
	// SharedStorage says that other API servers may use the same etcd: it is
	// true unless the etcd is embedded.
	SharedStorage bool
	// ProxyClientCertFile and ProxyClientKeyFile are the certificate by which
	// the aggregation layer identifies itself to extension API servers.
	ProxyClientCertFile, ProxyClientKeyFile string
}

// Authentication says who is believed to be who.
type Authentication struct {
	ClientCAFile  string
	TokenAuthFile string
	Anonymous     bool
	RequestHeader genericoptions.RequestHeaderAuthenticationOptions
}

// ServiceAccounts says which tokens of service accounts are accepted, and how
// they are issued.
type ServiceAccounts struct {
	// Issuers are accepted as issuers; tokens are issued in the name of the
	// first.
	Issuers []string
	// KeyFiles hold the keys by which tokens are checked; none means the file
	// of the serving certificate's key.
	KeyFiles []string
	// SigningKeyFile holds the key by which tokens are signed; empty issues
	// none.
	SigningKeyFile string
	// Lookup makes tokens that secrets hold end with the secret.
	Lookup bool
	// Audiences are those of the API server; none means Issuers.
	Audiences []string
	// MaxExpiration shortens longer lifetimes; zero does not.
	MaxExpiration time.Duration
	// ExtendExpiration gives tokens that are mounted into pods a year.
	ExtendExpiration bool
	// JWKSURI is where others find the keys; empty is this server.
	JWKSURI string
}

// APIAudiences are the audiences of the API server.
func (s *ServiceAccounts) APIAudiences() []string {
	if len(s.Audiences) > 0 {
		return s.Audiences
	}
	return s.Issuers
}

// Authorization says who may do what.
type Authorization struct {
	// Modes are asked in order; the first that decides, does.
	Modes []string
	// Components are granted their rights when there are no modes.
	Components authorization.Grants
}

// Features are the endpoints that are not resources.
type Features struct {
	// Profiling serves /debug/pprof to those who may read it.
	Profiling bool
}

// Requests bounds requests and the life of the server around them.
type Requests struct {
	MaxInFlight, MaxMutatingInFlight int
	// Timeout is for all but long-running requests; MinTimeout (seconds) is
	// the shortest random life of a watch.
	Timeout    time.Duration
	MinTimeout int
	// GoawayChance is the probability of closing an HTTP/2 connection
	// gracefully, to spread clients over servers.
	GoawayChance float64
	// LivezGracePeriod is how long /livez passes while start-up hooks run.
	LivezGracePeriod time.Duration
	// ShutdownDelay is how long a terminating server still takes requests.
	ShutdownDelay time.Duration
	// CORSOrigins are regular expressions of the origins whose scripts browsers
	// let read answers; none means no origin.
	CORSOrigins []string
	// HSTSDirectives are those of the header Strict-Transport-Security (RFC
	// 6797); none means no header.
	HSTSDirectives []string
	// PriorityAndFairness queues requests by priority levels rather than
	// counting them.
	PriorityAndFairness bool
}

// Agents says how the server reaches the agents of nodes, for logs, exec and
// the like.
type Agents struct {
	// CAFile holds the authorities of agents' serving certificates; without
	// it no agent is trusted.
	CAFile string
	// CertFile and KeyFile are the certificate by which the server identifies
	// itself to agents.
	CertFile, KeyFile string
	// AddressTypes are the types of nodes' addresses, the preferred first.
	AddressTypes []string
	// Timeout is for connecting, and for the first word of the TLS handshake.
	Timeout time.Duration
	// Metrics serves metrics.k8s.io by asking agents.
	Metrics bool
}

// Network describes the cluster's addresses.
type Network struct {
	// AdvertiseAddress is where members of the cluster reach this server;
	// empty is the bind address or, if that is any address, the host's.
	AdvertiseAddress net.IP
	// ServiceClusterIPRange is one CIDR or two, one of each family.
	ServiceClusterIPRange string
	ServiceNodePortRange  utilnet.PortRange
	// ExternalHostname is the host name for external URLs.
	ExternalHostname string
	// AggregatorRouting makes the server reach extension servers and webhooks
	// at the endpoints of their services rather than at cluster IPs, which
	// need not work on its machine.
	AggregatorRouting bool
}

// New are the default options.
func New() *Options {
	tolerations := tolerationseconds.NewDefaults()
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.BindPort = 6443
	serving.Required = true
	serving.ServerCert.PairName = "apiserver"
	serving.ServerCert.CertDirectory = "/var/run/svc"
	serving.HTTP2MaxStreamsPerConnection = 1000
	return &Options{
		SecureServing: serving,
		Etcd: storage.Config{
			Prefix:             storage.DefaultPrefix,
			CompactionInterval: storagebackend.DefaultCompactInterval,
		},
		Authentication: Authentication{
			Anonymous: true,
			RequestHeader: genericoptions.RequestHeaderAuthenticationOptions{
				UsernameHeaders:     []string{"X-Remote-User"},
				UIDHeaders:          []string{"X-Remote-Uid"},
				GroupHeaders:        []string{"X-Remote-Group"},
				ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
			},
		},
		ServiceAccounts: ServiceAccounts{Lookup: true, ExtendExpiration: true},
		Admission:       newAdmission(tolerations),
		Tolerations:     tolerations,
		EventTTL:        time.Hour,
		Audit:           genericoptions.NewAuditOptions(),
		Features:        Features{Profiling: true},
		Requests: Requests{
			MaxInFlight:         400,
			MaxMutatingInFlight: 200,
			Timeout:             time.Minute,
			MinTimeout:          1800,
			PriorityAndFairness: true,
		},
		Network: Network{
			ServiceClusterIPRange: "10.0.0.0/24",
			ServiceNodePortRange:  utilnet.PortRange{Base: 30000, Size: 2768},
			AggregatorRouting:     true,
		},
		Agents: Agents{
			AddressTypes: []string{
				string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP),
				string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
			},
			Timeout: 5 * time.Second,
		},
		RuntimeConfig: map[string]string{},
		Release:       release.Default,
		SharedStorage: true,
	}
}

// newAdmission adds the plugins of svc to those of the library. Those that
// change objects come before the webhooks.
func newAdmission(tolerations *tolerationseconds.Defaults) *genericoptions.AdmissionOptions {
	o := genericoptions.NewAdmissionOptions()
	priority.Register(o.Plugins)
	tolerationseconds.Register(o.Plugins, tolerations)
	noderestriction.Register(o.Plugins)
	o.RecommendedPluginOrder = slices.Insert(o.RecommendedPluginOrder, 1, priority.PluginName, tolerationseconds.PluginName, noderestriction.PluginName)
	return o
}
