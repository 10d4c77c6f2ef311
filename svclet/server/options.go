package server

import (
	"time"

	"svc.dev/svc/svclet/server/auth"
)

// Options configure the server. The names are those of SvcletConfiguration;
// section numbers are those of the document on the node agent.
type Options struct {
	// NodeName is the name of the Node object. A self-signed certificate is
	// for this name, and permission is asked for its subresources.
	NodeName string

	// Address is where the secure and the read-only port listen (section 4).
	Address string
	// Port is the secure port. Zero takes a free one.
	Port int32
	// ReadOnlyPort is the port without authentication. Zero disables it.
	ReadOnlyPort int32
	// HealthzBindAddress and HealthzPort are where health alone is served.
	// Zero disables it.
	HealthzBindAddress string
	HealthzPort        int32

	// TLSCertFile and TLSPrivateKeyFile hold the serving pair; without both of
	// them a self-signed pair is made and kept in CertDirectory (section 5).
	// All files are read again when they change.
	TLSCertFile, TLSPrivateKeyFile, CertDirectory string
	// TLSMinVersion is VersionTLS10 to VersionTLS13, by default VersionTLS12.
	TLSMinVersion string
	// TLSCipherSuites are names of suites up to TLS 1.2, by default Go's.
	TLSCipherSuites []string
	// TLSCurvePreferences are numbers of key exchanges ([tls.CurveID]), by default
	// Go's, which chooses among them in an order of its own.
	TLSCurvePreferences []int32
	// ClientCAFile holds the authorities of client certificates.
	ClientCAFile string

	// AnonymousAuth lets callers without credentials in as system:anonymous.
	AnonymousAuth bool
	// TokenWebhook has bearer tokens reviewed by the API server, whose answers
	// are believed for TokenWebhookCacheTTL.
	TokenWebhook         bool
	TokenWebhookCacheTTL time.Duration
	// AuthorizationMode is auth.AlwaysAllow or auth.Webhook, whose answers are
	// believed for AuthorizedTTL and UnauthorizedTTL.
	AuthorizationMode              string
	AuthorizedTTL, UnauthorizedTTL time.Duration

	// EnableDebuggingHandlers serves logs, commands, streams, profiles and the
	// configuration at all.
	EnableDebuggingHandlers bool
	// EnableSystemLogHandler serves LogDirectory below /logs/.
	EnableSystemLogHandler bool
	// EnableProfilingHandler serves /debug/pprof/ on the secure port.
	EnableProfilingHandler bool
	// EnableDebugFlagsHandler lets the verbosity of logs be set at
	// /debug/flags/v.
	EnableDebugFlagsHandler bool
	// LogDirectory is where the system's logs are, by default /var/log.
	LogDirectory string

	// StreamingConnectionIdleTimeout closes streams on which nothing moves.
	// Zero does not.
	StreamingConnectionIdleTimeout time.Duration
	// SyncLoopTimeout is after how long without progress of the agent's loop
	// it is not healthy: twice the sync period, and at least 5 minutes.
	SyncLoopTimeout time.Duration
}

// Defaults are the documented ones (sections 4, 5 and 8).
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

// maxConnection is how long any connection to the server lasts (section 4).
const maxConnection = 4 * time.Hour
