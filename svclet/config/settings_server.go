package config

import (
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/svclet/image/records"
)

func serverSettings() []Setting {
	return []Setting{
		{Flag: "enable-server", Field: "enableServer", Deprecated: true, Usage: "Serve svclet's API: logs, exec, statistics, health."},
		{Flag: "address", Field: "address", Deprecated: true, Rule: ip(), Usage: "IP address to serve on. 0.0.0.0 or :: means all interfaces and IP families."},
		{Flag: "port", Field: "port", Deprecated: true, Rule: from(1, 65535), Usage: "Port to serve on, with TLS. Connections last at most 4 hours."},
		{Flag: "read-only-port", Field: "readOnlyPort", Deprecated: true, Rule: from(0, 65535), Usage: "Read-only port without TLS, authentication and authorization. 0 disables it."},
		{Flag: "healthz-bind-address", Field: "healthzBindAddress", Deprecated: true, Rule: ip(), Usage: "IP address of the health endpoint. 0.0.0.0 or :: means all interfaces and IP families."},
		{Flag: "healthz-port", Field: "healthzPort", Deprecated: true, Rule: from(0, 65535), Usage: "Port of the health endpoint. 0 disables it."},
		{Flag: "enable-debugging-handlers", Field: "enableDebuggingHandlers", Deprecated: true, Usage: "Serve container logs, exec, attach, port forwarding and profiles."},
		{Field: "enableSystemLogHandler", Usage: "Serve /var/log at /logs/."},
		{Field: "enableSystemLogQuery", Usage: "Let clients query the logs of services of the machine, by /logs/?query=NAME (feature gate NodeLogQuery)."},
		{Field: "enableProfilingHandler", Usage: "Serve /debug/pprof/."},
		{Field: "enableDebugFlagsHandler", Usage: "Serve /debug/flags/v, which sets the log verbosity."},
		{Field: "tracing", Usage: "Send spans of the agent's server, of requests to the API server and of requests to the container runtime to an OTLP collector by gRPC, without TLS (feature gate SvcletTracing): " +
			"endpoint, by default localhost:4317, and samplingRatePerMillion, by default 0: only requests whose client has sampled them."},
		{Flag: "contention-profiling", Field: "enableContentionProfiling", Deprecated: true, Usage: "Enable block profiling, if profiles are served."},
		{Flag: "streaming-connection-idle-timeout", Field: "streamingConnectionIdleTimeout", Deprecated: true,
			Usage: "Idle timeout of a stream (exec, attach, port forwarding). 0 means none; in a file, where 0 means the default, a negative value does."},
	}
}

func authSettings() []Setting {
	return []Setting{
		{Flag: "anonymous-auth", Field: "authentication.anonymous.enabled", Deprecated: true,
			Usage: "Accept requests that no other authentication method has rejected, as user system:anonymous in group system:unauthenticated."},
		{Flag: "client-ca-file", Field: "authentication.x509.clientCAFile", Deprecated: true,
			Usage: "CA certificates file: a request with a client certificate signed by one of them is authenticated as its common name."},
		{Flag: "authentication-token-webhook", Field: "authentication.webhook.enabled", Deprecated: true, Usage: "Authenticate bearer tokens by the API server (TokenReview)."},
		{Flag: "authentication-token-webhook-cache-ttl", Field: "authentication.webhook.cacheTTL", Deprecated: true, Rule: notNegative(), Usage: "How long responses of the token webhook are cached."},
		{Flag: "authorization-mode", Field: "authorization.mode", Deprecated: true, Rule: oneOf("AlwaysAllow", "Webhook"),
			Usage: "Authorization mode: AlwaysAllow, or Webhook, which asks the API server (SubjectAccessReview)."},
		{Flag: "authorization-webhook-cache-authorized-ttl", Field: "authorization.webhook.cacheAuthorizedTTL", Deprecated: true, Rule: notNegative(), Usage: "How long 'authorized' responses are cached."},
		{Flag: "authorization-webhook-cache-unauthorized-ttl", Field: "authorization.webhook.cacheUnauthorizedTTL", Deprecated: true, Rule: notNegative(), Usage: "How long 'unauthorized' responses are cached."},
	}
}

func tlsSettings() []Setting {
	return []Setting{
		{Flag: "tls-cert-file", Field: "tlsCertFile", Deprecated: true,
			Usage: "Serving certificate, with intermediate certificates appended. Without it and its key, a self-signed pair is generated in --cert-dir."},
		{Flag: "tls-private-key-file", Field: "tlsPrivateKeyFile", Deprecated: true, Usage: "Private key of --tls-cert-file."},
		{Flag: "cert-dir", Usage: "Directory of the certificates that svclet generates or requests. A serving certificate of --tls-cert-file is not in it."},
		{Flag: "rotate-certificates", Field: "rotateCertificates", Deprecated: true,
			Usage: "Renew the client certificate by requesting a new one from the API server as its expiration approaches."},
		{Flag: "rotate-server-certificates", Field: "serverTLSBootstrap", Deprecated: true,
			Usage: "Request the serving certificate from the API server, and renew it as its expiration approaches. Needs the feature gate RotateSvcletServerCertificate, and an administrator or a controller that approves the requests."},
		{Flag: "tls-min-version", Field: "tlsMinVersion", Deprecated: true, Rule: oneOf("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
			Usage: "Minimum TLS version: VersionTLS10, VersionTLS11, VersionTLS12 (the default) or VersionTLS13."},
		{Flag: "tls-cipher-suites", Field: "tlsCipherSuites", Deprecated: true, Rule: cipherSuites(),
			Usage: "Cipher suites, up to TLS 1.2. Default: Go's. Preferred: " + strings.Join(cliflag.PreferredTLSCipherNames(), ", ") +
				". Insecure: " + strings.Join(cliflag.InsecureTLSCipherNames(), ", ") + "."},
		{Field: "tlsCurvePreferences", Rule: keyExchanges(),
			Usage: "Accepted TLS key exchanges, in any order. Default: Go's."},
	}
}

func runtimeSettings() []Setting {
	return []Setting{
		{Flag: "container-runtime-endpoint", Field: "containerRuntimeEndpoint", Rule: endpoint(), Usage: "Socket of an existing container runtime, such as unix:///run/containerd/containerd.sock. By default svclet runs its own containerd."},
		{Flag: "image-service-endpoint", Field: "imageServiceEndpoint", Rule: endpoint(), Usage: "Socket of the image service, if it differs from the container runtime's."},
		{Flag: "runtime-request-timeout", Field: "runtimeRequestTimeout", Deprecated: true, Rule: positive(),
			Usage: "Timeout of all requests to the container runtime but pull, logs, exec and attach. A request that timed out is retried later."},
		{Flag: "serialize-image-pulls", Field: "serializeImagePulls", Deprecated: true,
			Usage: "Pull one image at a time. Default: true, unless maxParallelImagePulls is above 1."},
		{Field: "maxParallelImagePulls", Rule: atLeast(1), Usage: "Maximum number of parallel image pulls, unless they are serialized. Default: no limit."},
		{Flag: "registry-qps", Field: "registryPullQPS", Deprecated: true, Rule: atLeast(0), Usage: "Maximum image pulls per second. 0 means no limit."},
		{Flag: "registry-burst", Field: "registryBurst", Deprecated: true, Rule: atLeast(0), Usage: "Burst of image pulls, if --registry-qps is above 0."},
		{Flag: "pod-infra-container-image", Deprecated: true, Usage: "Image of the container runtime's sandboxes, which is never removed as unused. The runtime itself chooses the image. Removal in 1.27."},
		{Flag: "image-gc-high-threshold", Field: "imageGCHighThresholdPercent", Deprecated: true, Rule: from(0, 100),
			Usage: "Percentage of the images' disk in use at which unused images are removed. 100 disables this."},
		{Flag: "image-gc-low-threshold", Field: "imageGCLowThresholdPercent", Deprecated: true, Rule: from(0, 100),
			Usage: "Percentage of the images' disk in use at which the removal of images ends. Not above the high threshold."},
		{Flag: "minimum-image-ttl-duration", Field: "imageMinimumGCAge", Deprecated: true, Rule: notNegative(), Usage: "Minimum age of an unused image before it is removed."},
		{Field: "imageMaximumGCAge", Rule: notNegative(), Usage: "How long an image may be unused before it is removed, whatever the usage of the disk. 0 means any time."},
		{Field: "imagePullCredentialsVerificationPolicy", Rule: oneOf("NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"),
			Usage: "For which images of the node a pod's pull secrets are verified at the registry, unless they have pulled the image before: for none, for those that svclet pulled, for all but preloaded ones of preloadedImagesVerificationAllowlist, or for all."},
		{Field: "preloadedImagesVerificationAllowlist", Rule: each("images with their registry, without tag and digest, of which the last segment may be *", refuseAllowed),
			Usage: "Preloaded images that need no verification with NeverVerifyAllowlistedImages, such as registry.example/team/* or docker.io/library/busybox."},
		{Flag: "image-credential-provider-config", Usage: "Configuration file of credential provider plugins, or a directory of such files."},
		{Flag: "image-credential-provider-bin-dir", Usage: "Directory of the binaries of credential provider plugins."},
	}
}

func containerLogSettings() []Setting {
	return []Setting{
		{Flag: "container-log-max-size", Field: "containerLogMaxSize", Deprecated: true, Rule: logSize(), Usage: "Maximum size of a container's log file before it is rotated (beta). A negative value means no limit."},
		{Flag: "container-log-max-files", Field: "containerLogMaxFiles", Deprecated: true, Rule: atLeast(2), Usage: "Maximum number of log files of a container (beta)."},
		{Field: "containerLogMaxWorkers", Rule: atLeast(1), Usage: "Maximum number of logs rotated in parallel."},
		{Field: "containerLogMonitorInterval", Rule: durationRule(3*time.Second, 1<<62, "3s or more"), Usage: "How often the sizes of container logs are checked. That of a log that grows fast is checked earlier."},
		{Field: "podLogsDir", Rule: cleanDirectory(), Usage: "Directory of the logs of all pods."},
	}
}

// refuseAllowed returns why an entry of preloadedImagesVerificationAllowlist is refused, or "".
func refuseAllowed(entry string) string {
	if err := records.CheckAllowed(entry); err != nil {
		return err.Error()
	}
	return ""
}
