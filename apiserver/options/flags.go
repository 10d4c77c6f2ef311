package options

import (
	"strings"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/apiserver/authentication/jwt"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/host"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/releases"
)

// AggregationFlags is the subject of the flags of a server behind a host.
const AggregationFlags = "aggregation"

// Flags returns the flags of the options, by subject.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.SecureServing.AddFlags(sets.FlagSet("secure serving"))
	o.addEtcdFlags(sets.FlagSet("etcd"))
	o.Authentication.addFlags(sets.FlagSet("authentication"))
	o.ServiceAccounts.addFlags(sets.FlagSet("service accounts"))
	addAuthorizationFlags(&o.Authorization, sets.FlagSet("authorization"))
	addHostFlags(&o.Host, sets.FlagSet(AggregationFlags))
	o.HostCertificates.AddFlags(sets.FlagSet(AggregationFlags))
	o.addAdmissionFlags(sets.FlagSet("admission"))
	o.Tolerations.AddFlags(sets.FlagSet("admission"))
	o.Audit.AddFlags(sets.FlagSet("auditing"))
	o.Requests.addFlags(sets.FlagSet("requests"))
	sets.FlagSet("requests").StringVar(&o.Tracing.ConfigFile, "tracing-config-file", o.Tracing.ConfigFile,
		"File with a TracingConfiguration (apiserver.config.k8s.io), which names the OpenTelemetry collector that gets spans of requests, and how many.")
	o.Network.addFlags(sets.FlagSet("network"))
	o.Agents.addFlags(sets.FlagSet("node agents"))
	o.addAPIFlags(sets.FlagSet("API"))
	return sets
}

func (o *Options) addEtcdFlags(fs *pflag.FlagSet) {
	e := &o.Etcd
	fs.StringSliceVar(&e.Servers, "etcd-servers", e.Servers, "Etcd servers to connect with (scheme://host:port), comma separated.")
	fs.StringSliceVar(&e.Overrides, "etcd-servers-overrides", e.Overrides,
		"Etcd servers of single resources, built-in or custom, comma separated, as group/resource#URL;URL, "+
			"for example /events#http://127.0.0.1:2479 for those of the core group. "+
			"Prefix and TLS files are those of --etcd-servers. Objects that are stored already are not moved.")
	fs.StringVar(&e.Prefix, "etcd-prefix", e.Prefix, "The prefix of all keys in etcd.")
	fs.StringVar(&e.CertFile, "etcd-certfile", e.CertFile, "Client certificate for the connection to etcd.")
	fs.StringVar(&e.KeyFile, "etcd-keyfile", e.KeyFile, "Private key of --etcd-certfile.")
	fs.StringVar(&e.TrustedCAFile, "etcd-cafile", e.TrustedCAFile, "Authorities of etcd's serving certificate.")
	fs.StringVar(&o.Encryption.File, "encryption-provider-config", o.Encryption.File,
		"File with an EncryptionConfiguration (apiserver.config.k8s.io), which names the resources that are stored encrypted, and how.")
	fs.BoolVar(&o.Encryption.Reload, "encryption-provider-config-automatic-reload", o.Encryption.Reload,
		"Read --encryption-provider-config again when it has changed. With several KMS plugins, there is one health check of all.")
	fs.DurationVar(&e.CompactionInterval, "etcd-compaction-interval", e.CompactionInterval,
		"The age at which history is dropped from etcd; a watch from an older version is answered with 410.")
}

func (a *Authentication) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.ClientCAFile, "client-ca-file", a.ClientCAFile,
		"Authorities of client certificates: a request with a certificate of theirs comes from the user of its common name, in the groups of its organizations.")
	fs.StringVar(&a.TokenAuthFile, "token-auth-file", a.TokenAuthFile,
		"CSV file of bearer tokens with the columns token, user name, user uid and, quoted, group names. It is read at the start.")
	fs.BoolVar(&a.BootstrapTokens, "enable-bootstrap-token-auth", a.BootstrapTokens,
		"Accept bootstrap tokens: those in secrets of type bootstrap.kubernetes.io/token in the namespace kube-system.")
	fs.BoolVar(&a.Anonymous, "anonymous-auth", a.Anonymous,
		"Let requests that no method recognises pass as user system:anonymous in group system:unauthenticated. "+
			"They never pass with --authorization-mode=AlwaysAllow.")
	track(fs, "anonymous-auth", &a.AnonymousSet)
	a.addTokenFlags(fs)
	h := &a.RequestHeader
	fs.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", h.ClientCAFile,
		"Authorities of front proxies: identity headers are accepted only from a client with a certificate of theirs.")
	fs.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", h.AllowedNames,
		"Common names of front proxies' certificates; empty allows every one of --requestheader-client-ca-file.")
	fs.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", h.UsernameHeaders, "Headers that hold the user name.")
	fs.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", h.UIDHeaders, "Headers that hold the user's UID.")
	fs.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", h.GroupHeaders, "Headers that hold the groups.")
	fs.StringSliceVar(&h.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", h.ExtraHeaderPrefixes, "Prefixes of headers that hold extra attributes.")
}

// addTokenFlags adds the flags of tokens that others issue or review.
func (a *Authentication) addTokenFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.ConfigFile, "authentication-config", a.ConfigFile,
		"File with an AuthenticationConfiguration: issuers of tokens, how their claims become users, and on which paths anonymous requests pass. "+
			"It is read again when it changes, except for the latter.")
	oidc := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := &a.OIDC
	oidc.StringVar(&o.IssuerURL, "oidc-issuer-url", o.IssuerURL, "An https URL: tokens that this OpenID Connect issuer has signed are accepted.")
	oidc.StringVar(&o.ClientID, "oidc-client-id", o.ClientID, "The audience that a token of --oidc-issuer-url must be for.")
	oidc.StringVar(&o.CAFile, "oidc-ca-file", o.CAFile, "Authorities of the issuer's serving certificate; the default is those of the system.")
	oidc.StringVar(&o.UsernameClaim, "oidc-username-claim", o.UsernameClaim, "The claim that is the user name.")
	oidc.StringVar(&o.UsernamePrefix, "oidc-username-prefix", o.UsernamePrefix,
		"Prefix of user names. The default is the issuer's URL and #, except for the claim email; - is none.")
	oidc.StringVar(&o.GroupsClaim, "oidc-groups-claim", o.GroupsClaim, "The claim that is the group, or the list of groups.")
	oidc.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", o.GroupsPrefix, "Prefix of the groups in --oidc-groups-claim; empty is none.")
	oidc.StringSliceVar(&o.SigningAlgorithms, "oidc-signing-algs", o.SigningAlgorithms,
		"Algorithms by which tokens may be signed: "+strings.Join(jwt.SigningAlgorithms(), ", ")+".")
	oidc.Var(cliflag.NewMapStringStringNoSplit(&o.RequiredClaims), "oidc-required-claim", "A claim=value pair that a token must have. May be given several times.")
	oidc.VisitAll(func(f *pflag.Flag) { track(oidc, f.Name, &a.OIDCSet) })
	fs.AddFlagSet(oidc)
	w := &a.Webhook
	fs.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", w.ConfigFile,
		"Kubeconfig of a webhook that reviews the tokens which no other method recognises.")
	fs.StringVar(&w.Version, "authentication-token-webhook-version", w.Version, "Version of the TokenReviews that the webhook gets: v1 or v1beta1.")
	fs.DurationVar(&w.CacheTTL, "authentication-token-webhook-cache-ttl", w.CacheTTL, "How long the webhook's answers are used.")
}

// track sets provided when the flag is given.
func track(fs *pflag.FlagSet, name string, provided *bool) {
	flag := fs.Lookup(name)
	flag.Value = cliflag.NewTracker(flag.Value, provided)
}

func (s *ServiceAccounts) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&s.KeyFiles, "service-account-key-file", s.KeyFiles,
		"PEM file of RSA or ECDSA keys, private or public, or certificates, by which tokens are checked. May be given several times. The default is --tls-private-key-file.")
	fs.StringVar(&s.SigningKeyFile, "service-account-signing-key-file", s.SigningKeyFile,
		"PEM file of the RSA or ECDSA private key by which tokens are signed; without it none are issued. --service-account-key-file must have its public key.")
	fs.StringArrayVar(&s.Issuers, "service-account-issuer", s.Issuers,
		"Issuer of tokens. May be given several times: the first is in new tokens, all are accepted. "+
			"If the first is an https URL, the server has the documents of OpenID Connect discovery at /.well-known/openid-configuration and /openid/v1/jwks.")
	fs.BoolVar(&s.Lookup, "service-account-lookup", s.Lookup,
		"Refuse a token from a secret when its secret or account has been deleted. Tokens from TokenRequests always end with their account.")
	fs.StringSliceVar(&s.Audiences, "api-audiences", s.Audiences,
		"Audiences of the API server: a token must be for one of them. The default is --service-account-issuer.")
	fs.DurationVar(&s.MaxExpiration, "service-account-max-token-expiration", s.MaxExpiration,
		"The longest validity of a new token: a request for more gets this. 0 is 2^32 seconds.")
	fs.BoolVar(&s.ExtendExpiration, "service-account-extend-token-expiration", s.ExtendExpiration,
		"Let tokens that are mounted into pods live for a year, if the pod does, for clients that do not read the file again; the audit log notes their late use.")
	fs.StringVar(&s.JWKSURI, "service-account-jwks-uri", s.JWKSURI,
		"URL of the keys in /.well-known/openid-configuration, if they are not to be read from this server.")
}

func addAuthorizationFlags(a *authorization.Config, fs *pflag.FlagSet) {
	fs.StringSliceVar(&a.Modes, "authorization-mode", a.Modes,
		"Authorizers, asked in order: "+strings.Join(authorization.Modes(), ", ")+". Members of system:masters may always do everything; "+
			"without any all other users may read health, version, discovery and OpenAPI.")
	fs.StringVar(&a.File, "authorization-config", a.File,
		"File with an AuthorizationConfiguration (apiserver.config.k8s.io), reloaded when it changes. Excludes --authorization-mode and its files.")
	fs.StringVar(&a.PolicyFile, "authorization-policy-file", a.PolicyFile, "File with the policies of the mode ABAC, one JSON object a line.")
	w := &a.Webhook
	fs.StringVar(&w.File, "authorization-webhook-config-file", w.File, "Kubeconfig of the server that the mode Webhook asks by SubjectAccessReviews.")
	fs.StringVar(&w.Version, "authorization-webhook-version", w.Version, "Version of the SubjectAccessReviews: v1 or v1beta1.")
	fs.DurationVar(&w.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", w.AuthorizedTTL, "How long 'authorized' responses of the webhook are cached.")
	fs.DurationVar(&w.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", w.UnauthorizedTTL, "How long 'unauthorized' responses of the webhook are cached.")
}

func addHostFlags(h *host.Options, fs *pflag.FlagSet) {
	fs.StringVar(&h.GroupDomain, "group-domain", h.GroupDomain,
		"Serve behind a host cluster, every API group under this domain: apps as apps.<domain>, the core group as core.<domain>. "+
			"The host recognises and authorizes users, and has the namespaces. The default is to serve standalone.")
	fs.StringVar(&h.FleetName, "fleet-name", h.FleetName,
		"With --group-domain, the name in /apis/fleet.<domain>/v1/fleets/<name>/proxy, below which the API is served under Kubernetes' own names.")
	fs.StringSliceVar(&h.Namespaces, "namespaces", h.Namespaces,
		"With --group-domain, the namespaces of the host that the fleet serves, beside those that every fleet has: "+strings.Join(host.Internal(), ", ")+". The default is to serve all.")
	fs.StringVar(&h.Kubeconfig, "host-kubeconfig", h.Kubeconfig, "With --group-domain, the kubeconfig of the host. The default is the service account of the pod.")
}

func (r *Requests) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&r.MaxInFlight, "max-requests-inflight", r.MaxInFlight, "The most reading requests at a time.")
	fs.IntVar(&r.MaxMutatingInFlight, "max-mutating-requests-inflight", r.MaxMutatingInFlight,
		"The most writing requests at a time; with flow control the sum of both is what priority levels share.")
	fs.DurationVar(&r.Timeout, "request-timeout", r.Timeout, "The longest that a request other than a watch may take.")
	fs.IntVar(&r.MinTimeout, "min-request-timeout", r.MinTimeout, "The shortest life of a watch in seconds; each gets up to twice as long, at random.")
	fs.Float64Var(&r.GoawayChance, "goaway-chance", r.GoawayChance, "The probability, up to 0.02, that a request makes its HTTP/2 client reconnect.")
	fs.DurationVar(&r.LivezGracePeriod, "livez-grace-period", r.LivezGracePeriod, "How long after the start /livez passes although start-up hooks still run.")
	fs.DurationVar(&r.ShutdownDelay, "shutdown-delay-duration", r.ShutdownDelay,
		"How long a terminating server goes on answering, /readyz failing, so that load balancers notice.")
	fs.StringSliceVar(&r.CORSOrigins, "cors-allowed-origins", r.CORSOrigins,
		"Origins whose scripts browsers let read answers: regular expressions that pin the host's start and end, as ^https://console[.]example[.]com(:|$).")
	fs.StringSliceVar(&r.HSTSDirectives, "strict-transport-security-directives", r.HSTSDirectives,
		"Directives of the header Strict-Transport-Security, as max-age=31536000,includeSubDomains. Without any there is no such header.")
	fs.BoolVar(&r.PriorityAndFairness, "enable-priority-and-fairness", r.PriorityAndFairness, "Queue requests by priority levels.")
}

func (n *Network) addFlags(fs *pflag.FlagSet) {
	fs.IPVar(&n.AdvertiseAddress, "advertise-address", n.AdvertiseAddress,
		"The address at which members of the cluster reach this server; the default is --bind-address or, if that is any address, one of the host's, of the family of --service-cluster-ip-range.")
	fs.StringVar(&n.ServiceClusterIPRange, "service-cluster-ip-range", n.ServiceClusterIPRange,
		"CIDR of the cluster IP addresses of services, or two, comma separated, of both families.")
	fs.Var(&n.ServiceNodePortRange, "service-node-port-range", "Ports that services of type NodePort get, both ends included.")
	fs.StringVar(&n.ExternalHostname, "external-hostname", n.ExternalHostname, "The host name in external URLs.")
	fs.BoolVar(&n.AggregatorRouting, "enable-aggregator-routing", n.AggregatorRouting,
		"Reach extension servers and webhooks at the endpoints of their services rather than at cluster IPs.")
}

func (a *Agents) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.CAFile, "svclet-certificate-authority", a.CAFile,
		"Authorities of the serving certificates of nodes' agents; without it no agent is trusted, and logs, exec and the like are refused.")
	fs.StringVar(&a.CertFile, "svclet-client-certificate", a.CertFile, "Client certificate for connections to nodes' agents.")
	fs.StringVar(&a.KeyFile, "svclet-client-key", a.KeyFile, "Private key of --svclet-client-certificate.")
	fs.StringSliceVar(&a.AddressTypes, "svclet-preferred-address-types", a.AddressTypes,
		"Types of a node's addresses, the preferred first, at which its agent is reached.")
	fs.DurationVar(&a.Timeout, "svclet-timeout", a.Timeout, "The longest that connecting to an agent may take, and the longest until its first byte.")
	fs.BoolVar(&a.Metrics, "resource-metrics", a.Metrics,
		"Serve metrics.k8s.io, for kubectl top and autoscalers, by asking nodes' agents. Another metrics server takes it over with its APIService.")
}

func (o *Options) addAPIFlags(fs *pflag.FlagSet) {
	release.AddFlags(fs, &o.Release, func(r release.Release) {
		fs.Lookup("feature-gates").Usage = gates.Usage(releases.Release(r.Minor), gates.Acts)
	})
	fs.Var((*cliflag.ConfigurationMap)(&o.RuntimeConfig), "runtime-config",
		"Comma-separated key[=true|false] pairs that turn API versions and resources on and off: "+
			"<group>/<version>, <group>/<version>/<resource>, v1 for the core group, api/all, api/ga, api/beta, api/alpha.")
	gates.AddFlag(fs, utilfeature.DefaultMutableFeatureGate, gates.Acts)
	fs.DurationVar(&o.EventTTL, "event-ttl", o.EventTTL, "How long an event is kept after its last change.")
	fs.BoolVar(&o.AllowPrivileged, "allow-privileged", o.AllowPrivileged, "Let containers be privileged; otherwise pods that ask for it are refused.")
	fs.StringVar(&o.ProxyClientCertFile, "proxy-client-cert-file", o.ProxyClientCertFile,
		"Client certificate by which the aggregation layer identifies itself to extension API servers.")
	fs.StringVar(&o.ProxyClientKeyFile, "proxy-client-key-file", o.ProxyClientKeyFile, "Private key of --proxy-client-cert-file.")
	fs.StringVar(&o.ShowHiddenMetrics, "show-hidden-metrics-for-version", o.ShowHiddenMetrics,
		"Show the deprecated metrics that were hidden since this release, which must be the one before the served release, as 1.27.")
	fs.BoolVar(&o.Features.Profiling, "profiling", o.Features.Profiling, "Serve /debug/pprof to users who are authorized to read it.")
}
