package config

import (
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
)

func serverSettings() []Setting {
	return []Setting{
		{Flag: "enable-server", Field: "enableServer", Deprecated: true, Usage: "Serve logs, commands, statistics and health."},
		{Flag: "address", Field: "address", Deprecated: true, Rule: ip(), Usage: "IP address to serve on. 0.0.0.0 or :: is every interface and family."},
		{Flag: "port", Field: "port", Deprecated: true, Rule: from(1, 65535), Usage: "Port to serve on, with TLS. Connections last at most 4 hours."},
		{Flag: "read-only-port", Field: "readOnlyPort", Deprecated: true, Rule: from(0, 65535), Usage: "Port without TLS, authentication and authorization, for reading only. 0 is none."},
		{Flag: "healthz-bind-address", Field: "healthzBindAddress", Deprecated: true, Rule: ip(), Usage: "IP address of the health endpoint. 0.0.0.0 or :: is every interface and family."},
		{Flag: "healthz-port", Field: "healthzPort", Deprecated: true, Rule: from(0, 65535), Usage: "Port of the health endpoint. 0 is none."},
		{Flag: "enable-debugging-handlers", Field: "enableDebuggingHandlers", Deprecated: true, Usage: "Serve logs of containers, exec, attach and port forwarding, and profiles."},
		{Field: "enableSystemLogHandler", Usage: "Serve /var/log at /logs/."},
		{Field: "enableProfilingHandler", Usage: "Serve /debug/pprof/."},
		{Field: "enableDebugFlagsHandler", Usage: "Serve /debug/flags/v, where the verbosity of logs can be set."},
		{Flag: "contention-profiling", Field: "enableContentionProfiling", Deprecated: true, Usage: "Profile where svclet blocks, if profiles are served."},
		{Flag: "streaming-connection-idle-timeout", Field: "streamingConnectionIdleTimeout", Deprecated: true,
			Usage: "For how long nothing may move on a stream (exec, attach, port forwarding) before it is closed. 0 is for ever; in a file, where 0 stands for the default, a negative value is."},
	}
}

func authSettings() []Setting {
	return []Setting{
		{Flag: "anonymous-auth", Field: "authentication.anonymous.enabled", Deprecated: true,
			Usage: "Let requests in that no other method has rejected, as system:anonymous of the group system:unauthenticated."},
		{Flag: "client-ca-file", Field: "authentication.x509.clientCAFile", Deprecated: true,
			Usage: "File of the authorities whose client certificates are believed; their common name is the user."},
		{Flag: "authentication-token-webhook", Field: "authentication.webhook.enabled", Deprecated: true, Usage: "Have bearer tokens reviewed by the API server (TokenReview)."},
		{Flag: "authentication-token-webhook-cache-ttl", Field: "authentication.webhook.cacheTTL", Deprecated: true, Rule: notNegative(), Usage: "For how long such an answer is believed."},
		{Flag: "authorization-mode", Field: "authorization.mode", Deprecated: true, Rule: oneOf("AlwaysAllow", "Webhook"),
			Usage: "Who may do what: AlwaysAllow, or Webhook, which asks the API server (SubjectAccessReview)."},
		{Flag: "authorization-webhook-cache-authorized-ttl", Field: "authorization.webhook.cacheAuthorizedTTL", Deprecated: true, Rule: notNegative(), Usage: "For how long a yes is believed."},
		{Flag: "authorization-webhook-cache-unauthorized-ttl", Field: "authorization.webhook.cacheUnauthorizedTTL", Deprecated: true, Rule: notNegative(), Usage: "For how long a no is believed."},
	}
}

func tlsSettings() []Setting {
	return []Setting{
		{Flag: "tls-cert-file", Field: "tlsCertFile", Deprecated: true,
			Usage: "Certificate to serve with, intermediate ones appended. Without it and its key a self-signed pair is made and kept in --cert-dir."},
		{Flag: "tls-private-key-file", Field: "tlsPrivateKeyFile", Deprecated: true, Usage: "Key of --tls-cert-file."},
		{Flag: "cert-dir", Usage: "Directory of the certificate that svclet makes for itself. Of no account with --tls-cert-file."},
		{Flag: "tls-min-version", Field: "tlsMinVersion", Deprecated: true, Rule: oneOf("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
			Usage: "Oldest version of TLS that is spoken: VersionTLS10, VersionTLS11, VersionTLS12 (if left out) or VersionTLS13."},
		{Flag: "tls-cipher-suites", Field: "tlsCipherSuites", Deprecated: true, Rule: cipherSuites(),
			Usage: "Cipher suites, up to TLS 1.2; those of Go if left out. Preferred: " + strings.Join(cliflag.PreferredTLSCipherNames(), ", ") +
				". Insecure: " + strings.Join(cliflag.InsecureTLSCipherNames(), ", ") + "."},
		{Field: "tlsCurvePreferences", Rule: keyExchanges(),
			Usage: "Key exchanges of TLS that are taken, in any order; those of Go if left out."},
	}
}

func runtimeSettings() []Setting {
	return []Setting{
		{Flag: "container-runtime-endpoint", Field: "containerRuntimeEndpoint", Rule: endpoint(), Usage: "Socket of a container runtime that runs already (unix:///run/containerd/containerd.sock). By default svclet runs a containerd of its own."},
		{Flag: "image-service-endpoint", Field: "imageServiceEndpoint", Rule: endpoint(), Usage: "Socket of the image service, if it is not the container runtime's."},
		{Flag: "runtime-request-timeout", Field: "runtimeRequestTimeout", Deprecated: true, Rule: positive(),
			Usage: "For how long the runtime may take to answer a request that is not a pull, logs, exec or attach. After that it is given up and tried again later."},
		{Flag: "serialize-image-pulls", Field: "serializeImagePulls", Deprecated: true,
			Usage: "Pull one image at a time. If left out, false when maxParallelImagePulls is above 1."},
		{Field: "maxParallelImagePulls", Rule: atLeast(1), Usage: "Images that are pulled at once, if not one at a time. Any number if left out."},
		{Flag: "registry-qps", Field: "registryPullQPS", Deprecated: true, Rule: atLeast(0), Usage: "Pulls that begin in a second. 0 is any number."},
		{Flag: "registry-burst", Field: "registryBurst", Deprecated: true, Rule: atLeast(0), Usage: "Pulls that begin at once, if --registry-qps is above 0."},
		{Flag: "image-credential-provider-config", Usage: "Configuration file of credential provider plugins, or a directory of such files."},
		{Flag: "image-credential-provider-bin-dir", Usage: "Directory of the programs of credential provider plugins."},
	}
}

func containerLogSettings() []Setting {
	return []Setting{
		{Flag: "container-log-max-size", Field: "containerLogMaxSize", Deprecated: true, Rule: quantity(), Usage: "Size at which the log of a container is rotated (beta). A negative one is never."},
		{Flag: "container-log-max-files", Field: "containerLogMaxFiles", Deprecated: true, Rule: atLeast(2), Usage: "Log files of a container (beta)."},
		{Field: "containerLogMaxWorkers", Rule: atLeast(1), Usage: "Logs that are rotated at once."},
		{Field: "containerLogMonitorInterval", Rule: durationRule(3*time.Second, 1<<62, "3s or more"), Usage: "How often the sizes of logs are looked at."},
		{Field: "podLogsDir", Rule: cleanDirectory(), Usage: "Directory of the logs of all pods."},
	}
}
