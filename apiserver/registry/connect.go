package registry

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericrest "k8s.io/apiserver/pkg/registry/generic/rest"
	"k8s.io/apiserver/pkg/registry/rest"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/filters/original"
)

// connectREST proxies requests to the backend of an object: a node, a pod or a service.
type connectREST struct {
	connect resource.Connect
	kind    *resource.Kind // whose subresource it is
	env     *resource.Env
}

// connecterREST proxies whole connections, upgraded ones too.
type connecterREST struct{ connectREST }

// streamREST answers a GET with what it reads from the backend.
type streamREST struct{ connectREST }

var (
	_ rest.Connecter         = &connecterREST{}
	_ rest.GetterWithOptions = &streamREST{}
	_ rest.StorageMetadata   = &streamREST{}
)

func newConnect(c resource.Connect, kind *resource.Kind, env *resource.Env) rest.Storage {
	r := connectREST{connect: c, kind: kind, env: env}
	if c.Answer != "" {
		return &streamREST{r}
	}
	return &connecterREST{r}
}

// Destroy implements rest.Storage.
func (c *connectREST) Destroy() {}

func (c *connectREST) options() (runtime.Object, bool, string) {
	if c.connect.Subpath {
		return c.connect.Options(), true, "path"
	}
	return c.connect.Options(), false, ""
}

// locate returns the address that a request is proxied to and the transport to it.
func (c *connectREST) locate(ctx context.Context, name string, options runtime.Object) (*resource.Location, http.RoundTripper, error) {
	where, err := c.connect.Locate(ctx, c.env, resource.ConnectRequest{
		Namespace: request.NamespaceValue(ctx), Name: name, Options: options,
	})
	if err != nil || where.URL == nil {
		return where, nil, err
	}
	if c.connect.Subpath {
		where.URL.Path = utilnet.JoinPreservingTrailingSlash(where.URL.Path)
	}
	switch {
	case where.Agent && where.Unverified:
		return where, c.env.Agents.Unverified, nil
	case where.Agent:
		transport, err := c.env.Agents.Verified()
		return where, transport, err
	default:
		return where, c.env.Agents.Other, nil
	}
}

// New implements rest.Storage.
func (c *connecterREST) New() runtime.Object { return c.connect.Options() }

// NewConnectOptions implements rest.Connecter.
func (c *connecterREST) NewConnectOptions() (runtime.Object, bool, string) { return c.options() }

// ConnectMethods implements rest.Connecter.
func (c *connecterREST) ConnectMethods() []string { return c.connect.Methods }

// Connect implements rest.Connecter. The backend gets the headers and the query that the
// client has sent; the responder's errors are of a type that the rewritten headers accept.
func (c *connecterREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	handler, err := c.connectTo(ctx, name, options, responder)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { handler.ServeHTTP(w, original.Of(req)) }), nil
}

// connectTo returns the handler that proxies a request to the backend. The client's
// connection is spliced only after the backend has answered 101.
func (c *connecterREST) connectTo(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	where, transport, err := c.locate(ctx, name, options)
	if err != nil {
		return nil, err
	}
	if !where.UpgradeOnly {
		return proxyTo(where.URL, transport, responder), nil
	}
	handler := proxy.NewUpgradeAwareHandler(where.URL, transport, false, true, proxy.NewErrorResponder(responder))
	switch c.connect.Websocket {
	case resource.WebsocketStreams:
		streams := translator.NewStreamTranslatorHandler(where.URL, transport, 0, translator.Options{
			Stdin: where.Stdin, Stdout: where.Stdout, Stderr: where.Stderr, Tty: where.TTY,
		})
		return translator.NewTranslatingHandler(handler, streams, wsstream.IsWebSocketRequestWithStreamCloseProtocol), nil
	case resource.WebsocketTunnel:
		return translator.NewTranslatingHandler(handler, translator.NewTunnelingHandler(handler), wsstream.IsWebSocketRequestWithTunnelingProtocol), nil
	default:
		return handler, nil
	}
}

// proxyTo proxies any request and keeps its query, which the library's handler
// drops from a request for an upgrade.
func proxyTo(to *url.URL, transport http.RoundTripper, responder rest.Responder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		to.RawQuery = req.URL.RawQuery
		proxy.NewUpgradeAwareHandler(to, transport, true, false, proxy.NewErrorResponder(responder)).ServeHTTP(w, req)
	})
}

// New implements rest.Storage.
func (s *streamREST) New() runtime.Object { return s.kind.New() }

// NewGetOptions implements rest.GetterWithOptions.
func (s *streamREST) NewGetOptions() (runtime.Object, bool, string) { return s.options() }

// ProducesMIMETypes implements rest.StorageMetadata.
func (s *streamREST) ProducesMIMETypes(string) []string { return []string{s.connect.Answer} }

// ProducesObject implements rest.StorageMetadata: the answer is text.
func (s *streamREST) ProducesObject(string) any { return "" }

// subresource is the resource that errors of the backend name.
func (s *streamREST) subresource() schema.GroupResource {
	gr := s.kind.Resource()
	gr.Resource += "/" + s.connect.Name
	return gr
}

// Get implements rest.GetterWithOptions.
func (s *streamREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	where, transport, err := s.locate(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return &genericrest.LocationStreamer{
		Location:        where.URL, // nil is read as an empty stream
		Transport:       transport,
		ContentType:     s.connect.Answer,
		Flush:           where.Follow,
		ResponseChecker: genericrest.NewGenericHttpResponseChecker(s.subresource(), name),
		RedirectChecker: genericrest.PreventRedirects,
	}, nil
}
