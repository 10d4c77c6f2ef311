package resource

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
)

// Connect declares a subresource whose requests the API server proxies to the
// object's endpoint, for example a pod's exec.
type Connect struct {
	Name string
	// Methods are the HTTP methods that are allowed.
	Methods []string
	// Verb, if set, is a verb for which every request must be authorized, besides
	// the verb of its HTTP method: a browser opens a websocket with GET, whose
	// verb alone would let readers run commands in containers. UpgradeVerb is the
	// same for requests that upgrade the connection, and for them only.
	Verb, UpgradeVerb string
	// LongRunning exempts requests from the request timeout and from the limits of
	// requests in flight. It holds for every subresource of this name, also for
	// those of aggregated APIs.
	LongRunning bool
	// Options makes an empty object of the subresource's parameters, which are
	// decoded from the request's query by the names of its JSON fields. It is
	// one of k8s.io/api's types.
	Options func() runtime.Object
	// Subpath makes the remaining path of the URL a parameter, too: path.
	Subpath bool
	// Answer makes the subresource one that is read (GET only) and answers
	// with this content type, for example a log.
	Answer string
	// Websocket is how a websocket of the client is translated for a node's agent,
	// which speaks SPDY.
	Websocket Websocket
	// Locate returns the location to which a request is proxied. Its errors are
	// apierrors.
	Locate func(ctx context.Context, env *Env, req ConnectRequest) (*Location, error)
}

// Websocket is the translation of a Connect's websockets.
type Websocket int

const (
	// WebsocketPasses proxies the websocket unchanged.
	WebsocketPasses Websocket = iota
	// WebsocketStreams carries the streams of a command: v5.channel.k8s.io.
	WebsocketStreams
	// WebsocketTunnel carries SPDY: SPDY/3.1+portforward.k8s.io.
	WebsocketTunnel
)

// ConnectRequest is one request of a Connect.
type ConnectRequest struct {
	Namespace, Name string
	// Options is what Connect.Options made, with the request's parameters.
	Options runtime.Object
}

// Location is where a request is proxied to.
type Location struct {
	// URL is nil where there is nothing to read yet.
	URL *url.URL
	// Agent means that URL is that of a node's agent, to which the API server
	// presents its client certificate. Unverified accepts any certificate of the
	// agent.
	Agent, Unverified bool
	// UpgradeOnly refuses requests that do not upgrade the connection.
	UpgradeOnly bool
	// Follow flushes the answer as it arrives instead of buffering it.
	Follow bool
	// Stdin, Stdout, Stderr and TTY are the streams of WebsocketStreams.
	Stdin, Stdout, Stderr, TTY bool
}
