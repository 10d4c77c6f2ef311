package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"svc.dev/svc/apiserver/admission/claimstatus"
	"svc.dev/svc/apiserver/admission/escalation"
	"svc.dev/svc/apiserver/admission/exclusion"
	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/admission/policyparams"
	"svc.dev/svc/apiserver/admission/policyschemas"
	"svc.dev/svc/apiserver/admission/serviceaccount"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/nodeproxy"
	"svc.dev/svc/apiserver/release"
)

// genericConfig returns the configuration that the servers of the chain share,
// and opens the port.
func (c *chain) genericConfig() (*genericapiserver.RecommendedConfig, error) {
	o := c.options
	config := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(c.stores.scheme))
	config.EffectiveVersion = release.Public(o.Release, release.SVCVersion())
	config.FeatureGate = utilfeature.DefaultFeatureGate
	config.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	config.MergedResourceConfig = serverstorage.NewResourceConfig()
	for _, gv := range []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion} {
		if c.stores.served.ServesOther(gv) {
			config.MergedResourceConfig.EnableVersions(gv)
		}
	}
	config.LoopbackClientConfig = c.clients.loopback
	config.ClientConfig = c.clients.loopback
	config.SharedInformerFactory = c.clients.informers
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString(nodeproxy.LongRunning(c.stores.kinds)...),
	)
	config.EnableProfiling = o.Features.Profiling
	config.EnableMetrics = false // see installMetrics
	config.MaxRequestsInFlight = o.Requests.MaxInFlight
	config.MaxMutatingRequestsInFlight = o.Requests.MaxMutatingInFlight
	config.RequestTimeout = o.Requests.Timeout
	config.MinRequestTimeout = o.Requests.MinTimeout
	config.GoawayChance = o.Requests.GoawayChance
	config.LivezGracePeriod = o.Requests.LivezGracePeriod
	config.ShutdownDelayDuration = o.Requests.ShutdownDelay
	config.BuildHandlerChainFunc = c.filters
	etcdCheck := healthz.NamedCheck("etcd", func(r *http.Request) error { return c.stores.backend.Check(r.Context()) })
	config.AddReadyzChecks(etcdCheck, c.stores.recorded)
	config.HealthzChecks = append(config.HealthzChecks, etcdCheck)
	config.LivezChecks = append(config.LivezChecks, liveEtcd)
	// A restart mends no KMS plugin either.
	config.AddReadyzChecks(c.stores.encryption.Checks...)
	config.HealthzChecks = append(config.HealthzChecks, c.stores.encryption.Checks...)

	if err := c.setServing(config); err != nil {
		return nil, err
	}
	if err := c.setIdentity(config); err != nil {
		return nil, err
	}
	if err := o.Audit.ApplyTo(&config.Config); err != nil {
		return nil, fmt.Errorf("audit: %w; see %s", err, strings.Join(auditFlags(o.Audit), " and "))
	}
	if config.AuditBackend != nil {
		config.AuditBackend = c.deprecated.Audit(config.AuditBackend)
		if c.hosted != nil {
			config.AuditBackend = groupdomain.Audit(config.AuditBackend, c.domainConfig(&config.Config))
		}
	}
	if err := c.setTracing(&config.Config); err != nil {
		return nil, err
	}
	if o.Requests.PriorityAndFairness && utilfeature.DefaultFeatureGate.Enabled(gates.APIPriorityAndFairness) {
		config.FlowControl = utilflowcontrol.New(c.clients.informers, c.clients.typed.FlowcontrolV1(), o.Requests.MaxInFlight+o.Requests.MaxMutatingInFlight)
	}
	return config, nil
}

// setTracing sends spans of requests to the collector of --tracing-config-file. They are those
// of kube-apiserver but for the ones of etcd's client.
func (c *chain) setTracing(config *genericapiserver.Config) error {
	file := c.options.Tracing.ConfigFile
	if file == "" {
		return nil
	}
	if !c.stores.gate(string(gates.APIServerTracing)) {
		return fmt.Errorf("--tracing-config-file: needs the feature gate %s; set --feature-gates=%s=true", gates.APIServerTracing, gates.APIServerTracing)
	}
	if err := c.options.Tracing.ApplyTo(nil, config); err != nil {
		return fmt.Errorf("--tracing-config-file: %s: %w", file, err)
	}
	config.TracerProvider = boundedTracer{config.TracerProvider}
	return nil
}

// boundedTracer ends although its collector does not answer.
type boundedTracer struct{ tracing.TracerProvider }

// flushTimeout bounds how long the end of a server waits for the collector of spans.
const flushTimeout = 2 * time.Second

// Shutdown sends the spans that are left; those that cannot be sent are lost.
func (t boundedTracer) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.TracerProvider.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).Info("Failed to send the last spans", "err", err)
	}
	return nil
}

// auditFlags returns the flags of the backends of the audit, as they are set.
func auditFlags(audit *genericoptions.AuditOptions) []string {
	var set []string
	if path := audit.LogOptions.Path; path != "" {
		set = append(set, "--audit-log-path="+path)
	}
	if file := audit.WebhookOptions.ConfigFile; file != "" {
		set = append(set, "--audit-webhook-config-file="+file)
	}
	return set
}

// liveEtcd is the check of etcd in /livez (document 2, section 4, rule 5). A server
// that is not live is restarted, and a restart cannot bring back an etcd that does
// not answer: it would only end the requests that do not need etcd. (A process whose
// embedded etcd fails ends by itself.) So the check passes while the process
// runs; the state of etcd is in /readyz.
var liveEtcd = healthz.NamedCheck("etcd", func(*http.Request) error { return nil })

// setServing opens the port.
func (c *chain) setServing(config *genericapiserver.RecommendedConfig) error {
	o := c.options
	if o.SecureServing.ServerCert.GeneratedCert == nil { // it is not in a Secret of the host
		if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
			return fmt.Errorf("serving certificate: %w; set --tls-cert-file and --tls-private-key-file, or --cert-dir to a directory that can be written", err)
		}
	}
	address := net.JoinHostPort(o.SecureServing.BindAddress.String(), strconv.Itoa(o.SecureServing.BindPort))
	if err := o.SecureServing.ApplyTo(&config.SecureServing); err != nil {
		if o.SecureServing.Listener == nil {
			return fmt.Errorf("cannot listen on %s: %w; choose another --secure-port or --bind-address", address, err)
		}
		return fmt.Errorf("TLS: %w; see --tls-cert-file, --tls-private-key-file and the other --tls flags", err)
	}
	config.SecureServing.Listener = c.layers.listener(config.SecureServing.Listener)
	advertise, err := o.Advertised()
	if err != nil {
		return err
	}
	config.PublicAddress = advertise
	config.ExternalAddress = o.Network.ExternalHostname
	return nil
}

// setIdentity sets the authenticator and the authorizer.
func (c *chain) setIdentity(config *genericapiserver.RecommendedConfig) error {
	config.Authentication.APIAudiences = c.identity.authentication.Audiences
	config.Authentication.Authenticator = c.identity.Request
	config.Authentication.RequestHeaderConfig = c.identity.authentication.RequestHeader
	if c.hosted != nil { // they are among those of clients
		config.SecureServing.ClientCA = c.identity.authentication.ClientCA
	} else if c.identity.authentication.ClientCA != nil {
		if err := config.Authentication.ApplyClientCert(c.identity.authentication.ClientCA, config.SecureServing); err != nil {
			return err
		}
	}
	if h := c.identity.authentication.RequestHeader; h != nil && c.hosted == nil {
		if err := config.Authentication.ApplyClientCert(h.CAContentProvider, config.SecureServing); err != nil {
			return err
		}
	}
	config.Authorization.Authorizer = c.identity.authorizers
	config.RuleResolver = c.identity.authorizers
	return nil
}

// hostPlugins are the admission plugins whose work is the host's: service accounts, and
// what nodes may do.
var hostPlugins = []string{serviceaccount.PluginName}

// policiesOff returns the plugins of admission policies whose feature gates are off: objects
// of their kinds may be stored, and have no effect. Policies are stable, and have no gate that
// can be off, since 1.30; mutating ones since 1.36.
func (c *chain) policiesOff() []string {
	var off []string
	if c.options.Release.Before(release.Release{Major: 1, Minor: 30}) && !c.stores.gate(string(gates.ValidatingAdmissionPolicy)) {
		off = append(off, validating.PluginName)
	}
	if !c.stores.gate(string(gates.MutatingAdmissionPolicy)) {
		off = append(off, mutating.PluginName)
	}
	return off
}

// addAdmission adds the admission plugins to the configuration.
func (c *chain) addAdmission(config *genericapiserver.RecommendedConfig) error {
	dynamicClient, err := dynamic.NewForConfig(c.clients.loopback)
	if err != nil {
		return err
	}
	webhookAuth := c.clients.webhookAuth()
	admission := *c.options.Admission
	if c.hosted != nil {
		if webhookAuth, err = c.reviewsInDomain(webhookAuth, &config.Config); err != nil {
			return err
		}
		admission.DisablePlugins = append(slices.Clone(admission.DisablePlugins), hostPlugins...)
	}
	off := c.policiesOff()
	admission.DisablePlugins = append(slices.Clone(admission.DisablePlugins), off...)
	admission.EnablePlugins = slices.DeleteFunc(slices.Clone(admission.EnablePlugins), func(name string) bool { return slices.Contains(off, name) })
	webhooks := webhookinit.NewPluginInitializer(webhookAuth, c.clients.services)
	excluded := exclusion.Initializer{Webhooks: c.stores.gate(string(gates.ExcludeAdmissionWebhookVirtualResources))}
	if err := admission.ApplyTo(&config.Config, c.clients.informers, policyschemas.Lazy(c.clients.typed), dynamicClient,
		utilfeature.DefaultFeatureGate, release.Internal(), webhooks, excluded); err != nil {
		if file := c.options.Admission.ConfigFile; file != "" {
			return pluginconfig.Explain(file, err)
		}
		return fmt.Errorf("admission: %w; see --enable-admission-plugins and --admission-control-config-file", err)
	}
	if c.hosted != nil {
		config.AdmissionControl = groupdomain.NameReviews(config.AdmissionControl)
	}
	config.AdmissionControl = policyparams.Guard(config.AdmissionControl, c.identity.authorizers, c.clients.typed)
	if c.stores.gate(string(gates.DRAResourceClaimGranularStatusAuthorization)) {
		config.AdmissionControl = claimstatus.Guard(config.AdmissionControl, c.identity.authorizers)
	}
	if c.hosted == nil { // behind a host, no role that is stored here comes into force
		roles := c.identity.authorizers.Roles
		if roles == nil {
			roles = &authorization.Roles{} // what is bound while RBAC is off would be in force once it is on
		}
		config.AdmissionControl = escalation.Guard(config.AdmissionControl, c.identity.authorizers, roles.Stored(c.clients.typed.RbacV1()))
	}
	// The specification names the check after the service (document 2, section 4).
	const libraryName, name = "start-apiserver-admission-initializer", "start-svc-apiserver-admission-initializer"
	config.PostStartHooks[name] = config.PostStartHooks[libraryName]
	delete(config.PostStartHooks, libraryName)
	return nil
}
