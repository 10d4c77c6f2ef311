package resource

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
)

// Connect is a subresource whose requests go on to where the object is, for
// example a pod's exec.
type Connect struct {
	Name string
	// Methods are the HTTP methods that are let through.
	Methods []string
	// Options makes an empty object of the subresource's parameters, which are
	// decoded from the request's query by the names of its JSON fields. It is
	// one of k8s.io/api's types.
	Options func() runtime.Object
	// Subpath says that the rest of the URL's path is a parameter, too: path.
	Subpath bool
	// Answer makes the subresource one that is read (GET only) and answers
	// with this content type, for example a log.
	Answer string
	// Websocket says how a client that speaks websocket is served by a node's
	// agent that speaks SPDY.
	Websocket Websocket
	// Locate says where a request goes. Its errors are apierrors.
	Locate func(ctx context.Context, env *Env, req ConnectRequest) (*Location, error)
}

// Websocket is what a websocket of a Connect carries.
type Websocket int

const (
	// WebsocketPasses goes on as it is.
	WebsocketPasses Websocket = iota
	// WebsocketStreams carries the streams of a command: v5.channel.k8s.io.
	WebsocketStreams
	// WebsocketTunnel carries SPDY: SPDY/3.1+portforward.k8s.io.
	WebsocketTunnel
)

// ConnectRequest is one call of a Connect.
type ConnectRequest struct {
	Namespace, Name string
	// Options is what Connect.Options made, filled in.
	Options runtime.Object
}

// Location is where a request goes.
type Location struct {
	// URL is nil where there is nothing to be had yet.
	URL *url.URL
	// Agent says that URL is that of a node's agent, which is reached with the
	// API server's own certificate. Unverified takes whatever certificate it has.
	Agent, Unverified bool
	// UpgradeOnly refuses requests that do not upgrade the connection.
	UpgradeOnly bool
	// Follow passes on an answer as it comes, rather than in large pieces.
	Follow bool
	// Stdin, Stdout, Stderr and TTY are the streams of WebsocketStreams.
	Stdin, Stdout, Stderr, TTY bool
}
