package groupdomain

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"svc.dev/svc/apiserver/filters/compression"
	"svc.dev/svc/apiserver/filters/rewrite"
)

// Config is what the filter needs to know of the server.
type Config struct {
	Names *Names
	// FleetName is the name of the fleet that the server serves.
	FleetName string
	// Scheme has the stored types, which say how protobuf is read.
	Scheme *runtime.Scheme
	// Kinds are the compiled-in kinds of resources, by the resources' stored names.
	Kinds map[schema.GroupVersionResource]schema.GroupVersionKind
	// Proxied are the subresources whose bodies are not the server's own.
	Proxied sets.Set[string]
	// Compress compresses the responses to get and list for clients that accept it.
	Compress bool
	// MaxBody is the largest body of a request, in bytes.
	MaxBody int64
}

// Filter serves requests in the names of the domain by a handler that knows the stored
// names only. Below [Names.FleetPath] it serves the handler's names. It must
// enclose all filters that write responses: what they compress cannot be translated, so
// it compresses responses itself.
func Filter(next http.Handler, config Config) http.Handler {
	f := &filter{Config: config, next: next}
	f.compressed = compression.Always(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.serveTranslated(w, req, config.Names.route(req.URL.Path, config.FleetName))
	}))
	return f
}

type filter struct {
	Config
	next http.Handler
	// compressed serves reads of objects, and documents.
	compressed http.Handler
	// public and stored are the nodes of the compiled-in kinds, which are made with their
	// first request.
	public, stored sync.Map
}

// nodeKey is the key of a node.
type nodeKey struct {
	resource schema.GroupVersionResource
	body     schema.GroupVersionKind
}

type contextKey struct{}

// UnderStoredNames reports whether a request came below [Names.FleetPath].
func UnderStoredNames(ctx context.Context) bool {
	return ctx.Value(contextKey{}) != nil
}

// ServeHTTP implements http.Handler.
func (f *filter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	to := f.Names.route(req.URL.Path, f.FleetName)
	switch to.document {
	case unnamed:
		f.next.ServeHTTP(w, req)
	case unknown:
		writeNotFound(w, to.reason)
	case fleet:
		f.next.ServeHTTP(w, f.at(req.WithContext(context.WithValue(req.Context(), contextKey{}, true)), to))
	default:
		if f.Compress && f.isRead(req, to) {
			f.compressed.ServeHTTP(w, req)
		} else {
			f.serveTranslated(w, req, to)
		}
	}
}

// serveTranslated serves objects and documents.
func (f *filter) serveTranslated(w http.ResponseWriter, req *http.Request, to route) {
	if to.document == objects {
		f.serveObjects(w, req, to)
	} else {
		f.serveDocument(w, req, to)
	}
}

// at returns the request at a stored path.
func (f *filter) at(req *http.Request, to route) *http.Request {
	translated := req.WithContext(req.Context())
	location := *req.URL
	location.Path = to.path
	if location.RawPath != "" {
		location.RawPath = f.Names.route(location.RawPath, f.FleetName).path
	}
	translated.URL = &location
	return translated
}

// serveObjects serves a request for objects.
func (f *filter) serveObjects(w http.ResponseWriter, req *http.Request, to route) {
	translated := f.at(req, to)
	translated.Header = req.Header.Clone()
	translated.Header.Del("Accept-Encoding")
	own := !f.Proxied.Has(to.subresource)
	if own {
		f.translateQuery(translated, to)
		f.translateRequest(translated, to)
	}
	rewrite.Serve(w, translated, f.next, func(out io.Writer, status int, header http.Header) rewrite.Body {
		switch {
		case header.Get("Content-Encoding") != "":
			return nil
		case status >= http.StatusBadRequest && own:
			return f.failure(out, header, to, req)
		case status >= http.StatusBadRequest:
			return f.proxyFailure(out, header, to, req)
		case !own:
			return nil
		}
		return f.body(out, header.Get("Content-Type"), f.toPublic(to))
	})
}

// isRead reports whether a request is for a document, or a get or a list of objects. The library takes
// every value of watch but these for true.
func (f *filter) isRead(req *http.Request, to route) bool {
	query := req.URL.Query()
	value := strings.ToLower(query.Get("watch"))
	return req.Method == http.MethodGet && !f.Proxied.Has(to.subresource) && (!query.Has("watch") || value == "false" || value == "0")
}

// toPublic returns the node of what a server answers with.
func (f *filter) toPublic(to route) *node {
	return f.node(&f.public, nodeKey{resource: to.gv.WithResource(to.resource)}, func(types []reflect.Type) *node {
		d := f.Names.toWire()
		root := response(d.object(schema.GroupResource{Group: to.gv.Group, Resource: to.resource}, types...))
		root.at("details.group").translate = d.field("details.group") // of a deletion
		return root
	})
}

// toStored returns the node of the objects in a request. body is the stored kind of its
// body, which may differ from the resource's (of a scale, say).
func (f *filter) toStored(to route, body schema.GroupVersionKind) *node {
	if !f.Scheme.Recognizes(body) {
		body = schema.GroupVersionKind{}
	}
	return f.node(&f.stored, nodeKey{to.gv.WithResource(to.resource), body}, func(types []reflect.Type) *node {
		return f.Names.toStorage().object(schema.GroupResource{Group: to.gv.Group, Resource: to.resource}, types...)
	})
}

// node returns the node of a key, which construct makes for the Go types of the
// resource and of the body.
func (f *filter) node(cache *sync.Map, key nodeKey, construct func(types []reflect.Type) *node) *node {
	kind, compiledIn := f.Kinds[key.resource]
	if !compiledIn { // there is no end of their names, and their node is small
		return construct(nil)
	}
	if made, ok := cache.Load(key); ok {
		return made.(*node)
	}
	var types []reflect.Type
	for _, gvk := range []schema.GroupVersionKind{kind, key.body} {
		if obj, err := f.Scheme.New(gvk); err == nil {
			types = append(types, reflect.TypeOf(obj))
		}
	}
	made, _ := cache.LoadOrStore(key, construct(types))
	return made.(*node)
}

// failure returns what translates the body of an error.
func (f *filter) failure(w io.Writer, header http.Header, to route, req *http.Request) *wholeBody {
	return whole(w, func(body []byte) ([]byte, error) {
		return f.status(header.Get("Content-Type"), body, [2]string{to.path, req.URL.Path})
	})
}

// proxyFailure returns what translates the body of an error of a proxied subresource, or
// nil if a backend wrote it: the server writes its own errors without their length.
func (f *filter) proxyFailure(w io.Writer, header http.Header, to route, req *http.Request) rewrite.Body {
	if header.Get("Content-Length") != "" {
		return nil
	}
	return &proxiedError{whole: f.failure(w, header, to, req)}
}

// body returns what translates an answer by its content type.
func (f *filter) body(w io.Writer, contentType string, root *node) rewrite.Body {
	proto := &protobuf{scheme: f.Scheme, root: root, stored: func(apiVersion string) string { return apiVersion }}
	switch {
	case strings.HasPrefix(contentType, "application/json"):
		return &jsonBody{to: w, root: root}
	case strings.HasPrefix(contentType, "application/yaml"):
		return whole(w, root.yaml)
	case !strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		return nil
	case strings.Contains(contentType, "stream=watch"):
		return &events{to: w, translate: proto.event}
	}
	return whole(w, proto.object)
}

// translateQuery translates the field selector of a request.
func (f *filter) translateQuery(req *http.Request, to route) {
	query := req.URL.Query()
	selector := query.Get("fieldSelector")
	if selector == "" {
		return
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return // the handler says what is wrong
	}
	root := f.toStored(to, schema.GroupVersionKind{})
	parsed, err = parsed.Transform(func(field, value string) (string, string, error) {
		if n := root.pointer("/" + strings.ReplaceAll(field, ".", "/")); n != nil && n.translate != nil && value != "" {
			value = n.translate(value, "")
		}
		return field, value, nil
	})
	if err == nil {
		query.Set("fieldSelector", parsed.String())
		req.URL.RawQuery = query.Encode()
	}
}

// whole returns a body that is translated when it is complete.
func whole(w io.Writer, translate func(body []byte) ([]byte, error)) *wholeBody {
	return &wholeBody{to: w, translate: translate}
}

type wholeBody struct {
	to        io.Writer
	translate func(body []byte) ([]byte, error)
	held      bytes.Buffer
}

// Write implements io.Writer.
func (b *wholeBody) Write(p []byte) (int, error) { return b.held.Write(p) }

// Flush implements rewrite.Body.
func (b *wholeBody) Flush() error { return nil }

// Close implements rewrite.Body. A body that cannot be translated is one that the server
// did not write itself.
func (b *wholeBody) Close() error {
	body := b.held.Bytes()
	if translated, err := b.translate(body); err == nil {
		body = translated
	}
	_, err := b.to.Write(body)
	return err
}

// maxProxiedError is how many bytes of an error of a proxied subresource are held. An
// error of the server itself is shorter.
const maxProxiedError = 64 << 10

// proxiedError is the error of the server itself or of a backend. That of a backend is
// not held: it is flushed, or has a length.
type proxiedError struct {
	whole  *wholeBody
	passes bool // the body stays
}

// Write implements io.Writer.
func (b *proxiedError) Write(p []byte) (int, error) {
	if !b.passes && b.whole.held.Len()+len(p) <= maxProxiedError {
		return b.whole.Write(p)
	}
	if err := b.Flush(); err != nil {
		return 0, err
	}
	return b.whole.to.Write(p)
}

// Flush implements rewrite.Body. The server does not flush its own errors.
func (b *proxiedError) Flush() error {
	b.passes = true
	_, err := b.whole.held.WriteTo(b.whole.to)
	return err
}

// Close implements rewrite.Body.
func (b *proxiedError) Close() error {
	if b.passes {
		return nil
	}
	return b.whole.Close()
}
