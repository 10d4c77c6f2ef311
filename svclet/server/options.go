package server

import (
	"crypto/tls"
	"net"
	"time"

	"svc.dev/svc/svclet/server/auth"
)

// Options configure the server. The names are those of SvcletConfiguration;
// section numbers are those of the document on the node agent.
type Options struct {
	// NodeName is the name of the Node object: the name in a self-signed certificate,
	// and the object whose subresources are authorized.
	NodeName string

	// Address is the address of the secure and the read-only port (section 4).
	Address string
	// Port is the secure port. Zero chooses a free one.
	Port int32
	// ReadOnlyPort is the port without authentication. Zero disables it.
	ReadOnlyPort int32
	// HealthzBindAddress and HealthzPort are the address of the health port. Zero
	// disables it.
	HealthzBindAddress string
	HealthzPort        int32

	// TLSCertFile and TLSPrivateKeyFile are the serving certificate; without both of
	// them a self-signed one is created in CertDirectory (section 5). All files are
	// reloaded when they change.
	TLSCertFile, TLSPrivateKeyFile, CertDirectory string
	// Serving returns the serving certificate, if it is neither of the above (section 5).
	Serving func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Addresses are those of the node that a self-signed certificate names.
	Addresses []net.IP
	// TLSMinVersion is VersionTLS10 to VersionTLS13, by default VersionTLS12.
	TLSMinVersion string
	// TLSCipherSuites are names of cipher suites up to TLS 1.2, by default Go's.
	TLSCipherSuites []string
	// TLSCurvePreferences are key exchanges ([tls.CurveID]), by default Go's, which
	// orders them itself.
	TLSCurvePreferences []int32
	// ClientCAFile has the certificate authorities of client certificates.
	ClientCAFile string

	// AnonymousAuth authenticates requests without credentials as system:anonymous.
	AnonymousAuth bool
	// TokenWebhook has the API server review bearer tokens, and caches the results for
	// TokenWebhookCacheTTL.
	TokenWebhook         bool
	TokenWebhookCacheTTL time.Duration
	// AuthorizationMode is auth.AlwaysAllow or auth.Webhook, whose results are cached
	// for AuthorizedTTL and UnauthorizedTTL.
	AuthorizationMode              string
	AuthorizedTTL, UnauthorizedTTL time.Duration

	// EnableDebuggingHandlers serves logs, commands, streams, profiles and the
	// configuration.
	EnableDebuggingHandlers bool
	// EnableSystemLogHandler serves LogDirectory below /logs/.
	EnableSystemLogHandler bool
	// EnableProfilingHandler serves /debug/pprof/ on the secure port.
	EnableProfilingHandler bool
	// EnableDebugFlagsHandler lets the verbosity of logs be set at
	// /debug/flags/v.
	EnableDebugFlagsHandler bool
	// EnableSystemLogQuery lets clients query the logs of services at /logs/.
	EnableSystemLogQuery bool
	// CheckpointDirectory is where containers are written to at /checkpoint/; empty
	// disables that.
	CheckpointDirectory string
	// LogDirectory is the directory of system logs, by default /var/log.
	LogDirectory string

	// StreamingConnectionIdleTimeout closes idle streams. Zero means no timeout.
	StreamingConnectionIdleTimeout time.Duration
	// SyncLoopTimeout is how long the agent's loop may make no progress before it
	// counts as not healthy: twice the sync period, and at least 5 minutes.
	SyncLoopTimeout time.Duration
}

// Defaults returns the documented defaults (sections 4, 5 and 8).
func Defaults() Options {
	return Options{
		Address: "0.0.0.0", Port: 10250, ReadOnlyPort: 10255,
		HealthzBindAddress: "127.0.0.1", HealthzPort: 10248,
		CertDirectory: "/var/lib/svclet/pki",
		AnonymousAuth: true, TokenWebhookCacheTTL: 2 * time.Minute,
		AuthorizationMode: auth.AlwaysAllow, AuthorizedTTL: 5 * time.Minute, UnauthorizedTTL: 30 * time.Second,
		EnableDebuggingHandlers: true, EnableSystemLogHandler: true,
		EnableProfilingHandler: true, EnableDebugFlagsHandler: true,
		LogDirectory:                   "/var/log",
		StreamingConnectionIdleTimeout: 4 * time.Hour,
		SyncLoopTimeout:                5 * time.Minute,
	}
}

// maxConnection is the maximum age of a connection (section 4).
const maxConnection = 4 * time.Hour
