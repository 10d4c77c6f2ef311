package options

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/compatibility"

	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/authentication/jwt"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/hostcerts"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/tlsrule"
)

// Validate returns all errors of the options. Each names its flag and the remedy.
func (o *Options) Validate() []error {
	var errs []error
	errs = append(errs, o.SecureServing.Validate()...)
	if problem := tlsrule.RefuseVersion(o.SecureServing.MinTLSVersion); problem != "" {
		errs = append(errs, errors.New("--tls-min-version: "+problem))
	}
	if problem := tlsrule.RefuseSuites(o.SecureServing.CipherSuites, o.SecureServing.MinTLSVersion); problem != "" {
		errs = append(errs, errors.New("--tls-cipher-suites: "+problem))
	}
	errs = append(errs, o.validateAdmission()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Authentication.RequestHeader.Validate()...)
	errs = append(errs, o.validateEtcd()...)
	errs = append(errs, o.validateHost()...)
	errs = append(errs, o.Requests.validate()...)
	errs = append(errs, o.ServiceAccounts.validate()...)
	errs = append(errs, o.Authentication.validate()...)
	if _, err := authorization.New(o.Authorization); err != nil {
		errs = append(errs, err)
	}
	if err := o.Encryption.Validate(); err != nil {
		errs = append(errs, err)
	}
	if _, err := o.Network.ServiceCIDRs(); err != nil {
		errs = append(errs, err)
	}
	if r := o.Network.ServiceNodePortRange; r.Size < 1 || r.Base < 1 || r.Base+r.Size-1 > 65535 {
		errs = append(errs, fmt.Errorf("--service-node-port-range: %s is not a range of ports from 1 to 65535, as 30000-32767", &r))
	}
	if h := o.Authentication.RequestHeader; len(h.AllowedNames) > 0 && h.ClientCAFile == "" {
		errs = append(errs, errors.New("--requestheader-allowed-names: has no effect without --requestheader-client-ca-file; set both"))
	}
	if err := o.Authentication.CheckAuthorities(); err != nil {
		errs = append(errs, err)
	}
	if a := o.Network.AdvertiseAddress; a != nil && a.IsUnspecified() {
		errs = append(errs, fmt.Errorf("--advertise-address: %s is not an address that clients can connect to; name one of this machine's", a))
	}
	if address, named := o.namedAddress(); named {
		if err := o.checkFamily(address); err != nil {
			errs = append(errs, err)
		}
	}
	if o.EventTTL < time.Second {
		errs = append(errs, fmt.Errorf("--event-ttl: %s must be at least 1s, as 1h", o.EventTTL))
	}
	if previous := (release.Release{Major: o.Release.Major, Minor: o.Release.Minor - 1}).String(); o.ShowHiddenMetrics != "" && o.ShowHiddenMetrics != previous {
		errs = append(errs, fmt.Errorf("--show-hidden-metrics-for-version: invalid release %q: must be %s, the release before the served one", o.ShowHiddenMetrics, previous))
	}
	errs = append(errs, gates.Validate(utilfeature.DefaultFeatureGate)...)
	if _, err := o.Gates(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, o.Agents.validate()...)
	return append(errs, o.validateFiles()...)
}

// validate returns the errors of the flags of tokens that others issue or review.
func (a *Authentication) validate() []error {
	var errs []error
	if a.OIDCSet && a.ConfigFile != "" {
		errs = append(errs, errors.New("--authentication-config and --oidc-*: use one of them; the issuer of the flags can be in the file"))
	}
	if o := a.OIDC; a.OIDCSet && a.ConfigFile == "" {
		if o.IssuerURL == "" || o.ClientID == "" {
			errs = append(errs, errors.New("--oidc-issuer-url and --oidc-client-id: set both, or no --oidc-* flag"))
		} else if u, err := url.Parse(o.IssuerURL); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--oidc-issuer-url: %q is not an https URL; write https://HOST/PATH", o.IssuerURL))
		}
		if o.UsernameClaim == "" {
			errs = append(errs, errors.New("--oidc-username-claim: must not be empty; leave it out for sub"))
		}
		if len(o.SigningAlgorithms) == 0 {
			errs = append(errs, errors.New("--oidc-signing-algs: name at least one algorithm, as RS256"))
		}
		for _, algorithm := range o.SigningAlgorithms {
			if all := jwt.SigningAlgorithms(); !slices.Contains(all, algorithm) {
				errs = append(errs, fmt.Errorf("--oidc-signing-algs: unsupported value %q: one of %s", algorithm, strings.Join(all, ", ")))
			}
		}
	}
	if w := a.Webhook; w.Version != "v1" && w.Version != "v1beta1" {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-version: unsupported value %q: one of v1, v1beta1", w.Version))
	}
	if a.Webhook.CacheTTL < 0 {
		errs = append(errs, fmt.Errorf("--authentication-token-webhook-cache-ttl: %s must not be negative", a.Webhook.CacheTTL))
	}
	return errs
}

// validateHost returns the errors of the flags of an aggregated server.
func (o *Options) validateHost() []error {
	h := o.Host
	errs := o.HostCertificates.Validate(hostcerts.Others{
		GroupDomain:  h.GroupDomain,
		ServingFiles: o.SecureServing.ServerCert.CertKey.CertFile != "" || o.SecureServing.ServerCert.CertKey.KeyFile != "",
		EtcdFiles:    o.Etcd.TrustedCAFile != "" || o.Etcd.CertFile != "" || o.Etcd.KeyFile != "",
		EtcdServers:  o.Etcd.Servers,
	})
	if h.GroupDomain == "" {
		if h.Kubeconfig != "" {
			errs = append(errs, errors.New("--host-kubeconfig: has no effect without --group-domain; set both"))
		}
		if h.Namespaces != nil {
			errs = append(errs, errors.New("--namespaces: has no effect without --group-domain; set both"))
		}
		return errs
	}
	if err := groupdomain.Validate(h.GroupDomain); err != nil {
		errs = append(errs, fmt.Errorf("--group-domain: %w", err))
	}
	if problems := validation.IsDNS1123Subdomain(h.FleetName); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--fleet-name: %q: %s", h.FleetName, problems[0]))
	}
	if h.Namespaces != nil && len(h.Namespaces) == 0 {
		errs = append(errs, errors.New("--namespaces: name at least one namespace, or leave it out to serve all"))
	}
	for _, name := range h.Namespaces {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--namespaces: %q: %s", name, problems[0]))
		}
	}
	a := o.Authentication
	for _, own := range []struct {
		flag string
		set  bool
	}{
		{"client-ca-file", a.ClientCAFile != ""},
		{"token-auth-file", a.TokenAuthFile != ""},
		{"enable-bootstrap-token-auth", a.BootstrapTokens},
		{"authentication-config", a.ConfigFile != ""},
		{"oidc-issuer-url", a.OIDCSet},
		{"authentication-token-webhook-config-file", a.Webhook.ConfigFile != ""},
		{"requestheader-client-ca-file", a.RequestHeader.ClientCAFile != ""},
		{"authorization-mode", len(o.Authorization.Modes) > 0},
		{"authorization-config", o.Authorization.File != ""},
	} {
		if own.set {
			errs = append(errs, fmt.Errorf("--%s: with --group-domain the host recognises and authorizes users; leave it out", own.flag))
		}
	}
	return errs
}

// validate returns the errors of the flags of agents.
func (a *Agents) validate() []error {
	var errs []error
	known := New().Agents.AddressTypes
	for _, t := range a.AddressTypes {
		if !slices.Contains(known, t) {
			errs = append(errs, fmt.Errorf("--svclet-preferred-address-types: invalid type %q: must be one of %s", t, strings.Join(known, ", ")))
		}
	}
	if len(a.AddressTypes) == 0 {
		errs = append(errs, errors.New("--svclet-preferred-address-types: name at least one type"))
	}
	if a.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--svclet-timeout: %s must be above 0, as 5s", a.Timeout))
	}
	return errs
}

// validateAdmission returns the errors of the flags of admission. Those of the library
// about a plugin that does not exist have neither the dashes of the flag nor a remedy.
func (o *Options) validateAdmission() []error {
	errs := o.Admission.Validate()
	for i, err := range errs {
		for _, flag := range []string{"enable-admission-plugins", "disable-admission-plugins"} {
			var name string
			if n, _ := fmt.Sscanf(err.Error(), flag+" plugin %q", &name); n == 1 {
				errs[i] = fmt.Errorf("--%s: %w", flag, pluginconfig.Unknown(name, o.Admission.Plugins.Registered()))
			}
		}
	}
	return errs
}

func (o *Options) validateEtcd() []error {
	var errs []error
	if len(o.Etcd.Servers) == 0 {
		errs = append(errs, errors.New("--etcd-servers: name at least one etcd server, as http://127.0.0.1:2379"))
	}
	for _, server := range o.Etcd.Servers {
		if err := storage.ValidateServer(server); err != nil {
			errs = append(errs, fmt.Errorf("--etcd-servers: %w", err))
		}
	}
	overrides, err := storage.ParseOverrides(o.Etcd.Overrides)
	if err != nil {
		errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %w", err))
	}
	secureOverrides := slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(overrides))...), isSecure)
	if secure := o.Etcd.CertFile != "" || o.Etcd.TrustedCAFile != ""; secure && !secureOverrides && slices.ContainsFunc(o.Etcd.Servers, isPlain) {
		errs = append(errs, errors.New("--etcd-certfile and --etcd-cafile have no effect on --etcd-servers that begin with http://; write https://"))
	}
	if !strings.HasPrefix(o.Etcd.Prefix, "/") {
		errs = append(errs, fmt.Errorf("--etcd-prefix: %q must begin with a slash", o.Etcd.Prefix))
	}
	if o.Etcd.CompactionInterval <= 0 {
		errs = append(errs, fmt.Errorf("--etcd-compaction-interval: %s must be above 0, as 5m", o.Etcd.CompactionInterval))
	}
	return errs
}

func isPlain(server string) bool { return strings.HasPrefix(server, "http://") }

func isSecure(server string) bool { return strings.HasPrefix(server, "https://") }

func (r *Requests) validate() []error {
	var errs []error
	for _, limit := range []struct {
		flag  string
		value int
	}{{"max-requests-inflight", r.MaxInFlight}, {"max-mutating-requests-inflight", r.MaxMutatingInFlight}} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("--%s: %d is negative; 0 is no limit", limit.flag, limit.value))
		}
	}
	if len(errs) == 0 && r.PriorityAndFairness && r.MaxInFlight+r.MaxMutatingInFlight == 0 {
		errs = append(errs, errors.New("--max-requests-inflight and --max-mutating-requests-inflight: flow control needs their sum to be above 0; "+
			"set one, or --enable-priority-and-fairness=false"))
	}
	if r.MinTimeout < 0 {
		errs = append(errs, fmt.Errorf("--min-request-timeout: %d is negative; give seconds, as 1800", r.MinTimeout))
	}
	if r.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--request-timeout: %s must be above 0, as 1m", r.Timeout))
	}
	if r.GoawayChance < 0 || r.GoawayChance > 0.02 {
		errs = append(errs, fmt.Errorf("--goaway-chance: %v must be between 0, which is never, and 0.02", r.GoawayChance))
	}
	if r.LivezGracePeriod < 0 {
		errs = append(errs, fmt.Errorf("--livez-grace-period: %s is negative; 0 is none", r.LivezGracePeriod))
	}
	if r.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration: %s is negative; 0 is none", r.ShutdownDelay))
	}
	// The library validates these two; its other fields are zero and valid.
	browsers := genericoptions.ServerRunOptions{
		ComponentGlobalsRegistry: compatibility.NewComponentGlobalsRegistry(),
		CorsAllowedOriginList:    r.CORSOrigins,
		HSTSDirectives:           r.HSTSDirectives,
	}
	return append(errs, browsers.Validate()...)
}

// The bounds of --service-account-max-token-expiration.
const (
	minMaxExpiration = time.Hour
	maxMaxExpiration = 1 << 32 * time.Second
)

func (s *ServiceAccounts) validate() []error {
	var errs []error
	if s.SigningKeyFile != "" && len(s.Issuers) == 0 {
		errs = append(errs, errors.New("--service-account-signing-key-file needs --service-account-issuer: name the issuer of the tokens, as https://kubernetes.default.svc"))
	}
	if s.SigningKeyFile != "" && len(s.KeyFiles) == 0 {
		errs = append(errs, errors.New("--service-account-signing-key-file needs --service-account-key-file: name the file of its public key there, or the same file"))
	}
	for i, issuer := range s.Issuers {
		_, err := url.Parse(issuer)
		switch {
		case issuer == "":
			errs = append(errs, errors.New("--service-account-issuer: must not be empty; name one, as https://kubernetes.default.svc"))
		case strings.Contains(issuer, ":") && err != nil:
			errs = append(errs, fmt.Errorf("--service-account-issuer: %q has a colon and is not a URL; write https://HOST", issuer))
		case slices.Contains(s.Issuers[:i], issuer):
			errs = append(errs, fmt.Errorf("--service-account-issuer: %q is given twice; leave one out", issuer))
		}
	}
	if slices.Contains(s.Audiences, "") {
		errs = append(errs, errors.New("--api-audiences: must not be empty; leave it out for those of --service-account-issuer"))
	}
	if s.JWKSURI != "" {
		if u, err := url.Parse(s.JWKSURI); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--service-account-jwks-uri: %q is not an https URL; write https://HOST/PATH", s.JWKSURI))
		}
	}
	if d := s.MaxExpiration; d != 0 && (d < minMaxExpiration || d > maxMaxExpiration) {
		errs = append(errs, fmt.Errorf("--service-account-max-token-expiration: %s must be between 1h and 2^32 seconds, or 0, which is the latter", d))
	}
	return errs
}

// ServiceCIDRs returns the ranges of cluster IPs, the primary family first.
func (n *Network) ServiceCIDRs() ([]netip.Prefix, error) {
	const flag = "--service-cluster-ip-range"
	var ranges []netip.Prefix
	for part := range strings.SplitSeq(n.ServiceClusterIPRange, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a CIDR, such as 10.0.0.0/24", flag, part)
		}
		if hosts := prefix.Addr().BitLen() - prefix.Bits(); hosts < 3 || hosts > 20 {
			return nil, fmt.Errorf("%s: %s must leave 3 to 20 bits to addresses", flag, prefix)
		}
		ranges = append(ranges, prefix.Masked())
	}
	if len(ranges) > 2 || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, fmt.Errorf("%s: give one CIDR, or two of different families", flag)
	}
	return ranges, nil
}
