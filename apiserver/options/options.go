// Package options owns the flags of the API server, their defaults and their
// validation. Names are those of the specification or, where it has none, of
// kube-apiserver.
package options

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/apiserver/admission/plugins"
	"svc.dev/svc/apiserver/admission/tolerationseconds"
	"svc.dev/svc/apiserver/authentication/jwt"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/encryption"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/host"
	"svc.dev/svc/apiserver/hostcerts"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/releases"
)

// Options are the API server's settings. New sets the defaults; the zero value of a
// field with a default is not valid.
type Options struct {
	SecureServing   *genericoptions.SecureServingOptions
	Etcd            storage.Config
	Authentication  Authentication
	ServiceAccounts ServiceAccounts
	Authorization   authorization.Config
	// Host is the host of an aggregated server.
	Host host.Options
	// HostCertificates are the certificates that an aggregated server keeps there.
	HostCertificates hostcerts.Options
	Encryption       encryption.Config
	Admission        *genericoptions.AdmissionOptions
	// EventTTL is how long an event is kept after its last change.
	EventTTL time.Duration
	// AllowPrivileged lets containers be privileged.
	AllowPrivileged bool
	// Tolerations are the default tolerations of pods for unready nodes.
	Tolerations *tolerationseconds.Defaults
	Audit       *genericoptions.AuditOptions
	// Tracing names the collector to which spans of requests are sent.
	Tracing  *genericoptions.TracingOptions
	Features Features
	Requests Requests
	Network  Network
	Agents   Agents

	// Metrics are the metrics of /metrics; nil means those of the libraries.
	Metrics prometheus.Gatherer
	// ShowHiddenMetrics is the release before Release, whose deprecated metrics are
	// shown although Release hides them; if it is empty, they are hidden.
	ShowHiddenMetrics string
	// RuntimeConfig turns API versions and resources on and off.
	RuntimeConfig map[string]string
	// Release is the Kubernetes release whose API is served.
	Release release.Release
	// SharedStorage is whether other API servers may use the same etcd: it is true
	// unless etcd is embedded.
	SharedStorage bool
	// ProxyClientCertFile and ProxyClientKeyFile are the certificate by which
	// the aggregation layer identifies itself to extension API servers.
	ProxyClientCertFile, ProxyClientKeyFile string
}

// Authentication configures the methods that authenticate requests.
type Authentication struct {
	ClientCAFile  string
	TokenAuthFile string
	// BootstrapTokens accepts the tokens in secrets of type
	// bootstrap.kubernetes.io/token.
	BootstrapTokens bool
	Anonymous       bool
	// AnonymousSet is whether the flag of Anonymous is given.
	AnonymousSet bool
	// ConfigFile is an AuthenticationConfiguration; empty without one.
	ConfigFile string
	// OIDC are the flags --oidc-*. OIDCSet is whether one of them is given.
	OIDC          jwt.Flags
	OIDCSet       bool
	Webhook       TokenWebhook
	RequestHeader genericoptions.RequestHeaderAuthenticationOptions
}

// TokenWebhook configures the webhook that reviews tokens which the server itself does
// not recognise.
type TokenWebhook struct {
	// ConfigFile is a kubeconfig that says how to reach it; empty without one.
	ConfigFile string
	// Version is that of the TokenReviews: v1 or v1beta1.
	Version string
	// CacheTTL is how long its answers are used.
	CacheTTL time.Duration
}

// ServiceAccounts configures which tokens of service accounts are accepted, and how
// they are issued.
type ServiceAccounts struct {
	// Issuers are the accepted issuers; the first one is in new tokens.
	Issuers []string
	// KeyFiles hold the keys that verify tokens; the default is the file of the
	// serving certificate's key.
	KeyFiles []string
	// SigningKeyFile holds the key that signs tokens; if it is empty, no tokens are
	// issued.
	SigningKeyFile string
	// Lookup makes tokens of secrets invalid when the secret is deleted.
	Lookup bool
	// Audiences are those of the API server; the default is Issuers.
	Audiences []string
	// MaxExpiration is the longest lifetime of a token; zero is unlimited.
	MaxExpiration time.Duration
	// ExtendExpiration extends the lifetime of tokens that are mounted into pods.
	ExtendExpiration bool
	// JWKSURI is the URL of the keys; the default is a URL of this server.
	JWKSURI string
}

// APIAudiences returns the audiences of the API server.
func (s *ServiceAccounts) APIAudiences() []string {
	if len(s.Audiences) > 0 {
		return s.Audiences
	}
	return s.Issuers
}

// Features are the endpoints that are not resources.
type Features struct {
	// Profiling serves /debug/pprof to authorized users.
	Profiling bool
}

// Requests configures the limits of requests, and the start and stop of the server.
type Requests struct {
	MaxInFlight, MaxMutatingInFlight int
	// Timeout is that of all requests except long-running ones; MinTimeout is the
	// shortest random duration of a watch, in seconds.
	Timeout    time.Duration
	MinTimeout int
	// GoawayChance is the probability of closing an HTTP/2 connection
	// gracefully, to spread clients over servers.
	GoawayChance float64
	// LivezGracePeriod is how long /livez passes while start-up hooks run.
	LivezGracePeriod time.Duration
	// ShutdownDelay is how long a terminating server still accepts requests.
	ShutdownDelay time.Duration
	// CORSOrigins are regular expressions of the origins whose scripts browsers
	// let read answers; none means no origin.
	CORSOrigins []string
	// HSTSDirectives are those of the header Strict-Transport-Security (RFC
	// 6797); none means no header.
	HSTSDirectives []string
	// PriorityAndFairness queues requests by priority levels; without it, requests
	// are only counted.
	PriorityAndFairness bool
}

// Agents configures the connections to the agents of nodes, for logs, exec and the
// like.
type Agents struct {
	// CAFile holds the authorities of agents' serving certificates; without
	// it no agent is trusted.
	CAFile string
	// CertFile and KeyFile are the certificate by which the server identifies
	// itself to agents.
	CertFile, KeyFile string
	// AddressTypes are the types of nodes' addresses, the preferred first.
	AddressTypes []string
	// Timeout bounds the connection, and the time until the first byte of the TLS handshake.
	Timeout time.Duration
	// Metrics serves metrics.k8s.io by asking agents.
	Metrics bool
}

// Network describes the cluster's addresses.
type Network struct {
	// AdvertiseAddress is the address at which members of the cluster reach this
	// server; Advertised has the default.
	AdvertiseAddress net.IP
	// ServiceClusterIPRange is one CIDR or two, one of each family.
	ServiceClusterIPRange string
	ServiceNodePortRange  utilnet.PortRange
	// ExternalHostname is the host name for external URLs.
	ExternalHostname string
	// AggregatorRouting makes the server connect to extension servers and webhooks
	// at the endpoints of their services, not at cluster IPs, which need not be
	// routed on its machine.
	AggregatorRouting bool
}

// New returns the default options.
func New() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	serving.BindPort = 6443
	serving.Required = true
	serving.ServerCert.PairName = "apiserver"
	serving.ServerCert.CertDirectory = "/var/run/svc"
	serving.HTTP2MaxStreamsPerConnection = 1000
	o := &Options{
		SecureServing: serving,
		Etcd: storage.Config{
			Prefix:             storage.DefaultPrefix,
			CompactionInterval: storagebackend.DefaultCompactInterval,
		},
		Authentication: Authentication{
			Anonymous: true,
			OIDC:      jwt.Flags{UsernameClaim: "sub", SigningAlgorithms: []string{"RS256"}},
			Webhook:   TokenWebhook{Version: "v1beta1", CacheTTL: 2 * time.Minute},
			RequestHeader: genericoptions.RequestHeaderAuthenticationOptions{
				UsernameHeaders:     []string{"X-Remote-User"},
				UIDHeaders:          []string{"X-Remote-Uid"},
				GroupHeaders:        []string{"X-Remote-Group"},
				ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
			},
		},
		Authorization:   authorization.NewConfig(),
		Host:            host.Options{FleetName: "default"},
		ServiceAccounts: ServiceAccounts{Lookup: true, ExtendExpiration: true},
		Tolerations:     tolerationseconds.NewDefaults(),
		EventTTL:        time.Hour,
		Audit:           genericoptions.NewAuditOptions(),
		Tracing:         genericoptions.NewTracingOptions(),
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
	o.Admission = newAdmission(plugins.Settings{
		Tolerations: o.Tolerations,
		Release:     func() release.Release { return o.Release },
		Gates:       o.Gates,
	})
	return o
}

// Gates returns the feature gates of the release, with the values of --feature-gates.
func (o *Options) Gates() (featuregate.FeatureGate, error) {
	return gates.At(releases.Release(o.Release.Minor), utilfeature.DefaultFeatureGate)
}

// newAdmission returns the library's options with svc's plugins.
func newAdmission(s plugins.Settings) *genericoptions.AdmissionOptions {
	o := genericoptions.NewAdmissionOptions()
	o.RecommendedPluginOrder = nil
	for _, p := range plugins.All(s) {
		p.Register(o.Plugins)
		o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, p.Name)
		if !p.On {
			o.DefaultOffPlugins.Insert(p.Name)
		}
	}
	return o
}
