// Package customlist writes the items of lists of custom resources as JSON, those that are
// listed again from package itemcache. The library copies each item and encodes it, by
// serializers that cannot be replaced. It gets lists without items, and decides about all
// else of a response.
package customlist

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apiserver/filters/rewrite"
	"svc.dev/svc/apiserver/itemcache"
)

type takenKey struct{}

// taken are the items of the list that the store has read for a request.
type taken struct{ items []unstructured.Unstructured }

// Take takes the items out of a list that the store has read, if Filter writes them.
func Take(ctx context.Context, list runtime.Object) {
	of, ok := ctx.Value(takenKey{}).(*taken)
	if !ok {
		return
	}
	if custom, ok := list.(*unstructured.UnstructuredList); ok {
		of.items, custom.Items = custom.Items, nil
	}
}

// Filter writes the items of the lists that handler, that of custom resources, responds
// with. serializer decides about the media type of a response as the handler does.
func Filter(handler http.Handler, serializer runtime.NegotiatedSerializer, cache *itemcache.Cache) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "list" || info.Subresource != "" || !isPlain(req, serializer) || isRecorded(req.Context()) {
			handler.ServeHTTP(w, req)
			return
		}
		of := &taken{}
		req = req.WithContext(context.WithValue(req.Context(), takenKey{}, of))
		rewrite.Serve(w, req, handler, func(w io.Writer, status int, _ http.Header) rewrite.Body {
			if status != http.StatusOK || len(of.items) == 0 {
				return nil
			}
			class := itemcache.Class{Type: reflect.TypeFor[unstructured.Unstructured](), APIVersion: info.APIVersion, MediaType: runtime.ContentTypeJSON}
			return &body{to: w, items: of.items, cached: cache.List(class)}
		})
	})
}

// isPlain reports whether the response will be JSON without indentation, and of the objects
// themselves: a media type without parameters asks for nothing else.
func isPlain(req *http.Request, serializer runtime.NegotiatedSerializer) bool {
	if strings.Contains(req.Header.Get("Accept"), ";") {
		return false
	}
	_, info, err := negotiation.NegotiateOutputMediaType(req, serializer, negotiation.DefaultEndpointRestrictions)
	return err == nil && info.MediaType == runtime.ContentTypeJSON && info.Serializer != info.PrettySerializer
}

// isRecorded reports whether an audit event will have the list.
func isRecorded(ctx context.Context) bool {
	of := audit.AuditContextFrom(ctx)
	return of != nil && !of.GetEventLevel().Less(auditinternal.LevelRequestResponse)
}

// empty is where the library, which sorts the members of a list, has no items. The version
// before it has no quotation marks.
var empty = []byte(`"items":[]`)

// body is the body of a list. The items are written at their place.
type body struct {
	to     io.Writer
	items  []unstructured.Unstructured
	cached *itemcache.List
	head   []byte // before the place has been found
	done   bool   // whether the items are written
}

// Write implements io.Writer.
func (b *body) Write(p []byte) (int, error) {
	if b.done {
		return b.to.Write(p)
	}
	b.head = append(b.head, p...)
	at := bytes.Index(b.head, empty)
	if at < 0 {
		return len(p), nil
	}
	b.done = true
	rest := b.head[at+len(empty)-1:]
	if err := b.writeItems(b.head[:at+len(empty)-1]); err != nil {
		return 0, err
	}
	_, err := b.to.Write(rest)
	return len(p), err
}

// Flush implements rewrite.Body. The head is written with the items.
func (b *body) Flush() error { return nil }

// Close implements io.Closer. A list without a place for its items is broken off.
func (b *body) Close() error {
	if !b.done {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// chunkSize is how many items are looked up in the cache at once.
const chunkSize = 128

// pooledSize is the capacity up to which buffers are kept for the next caller.
const pooledSize = 256 << 10

var buffers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// writeItems writes what precedes the items, and the items.
func (b *body) writeItems(head []byte) error {
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= pooledSize {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	buffer.Write(head)
	b.cached.Head(len(head))
	for from := 0; from < len(b.items); from += chunkSize {
		if err := b.writeChunk(buffer, b.items[from:min(from+chunkSize, len(b.items))], from == 0); err != nil {
			return err
		}
	}
	_, err := b.cached.End(b.to, buffer.Bytes(), 0)
	return err
}

// writeChunk writes at most chunkSize items through the buffer.
func (b *body) writeChunk(buffer *bytes.Buffer, items []unstructured.Unstructured, first bool) error {
	var objects [chunkSize]metav1.Object
	var found [chunkSize]itemcache.Found
	for i := range items {
		objects[i] = &items[i]
	}
	b.cached.Find(objects[:len(items)], found[:len(items)])
	for i := range items {
		if !first || i > 0 {
			buffer.WriteByte(',')
		}
		b.cached.Add(found[i])
		if found[i].Data != nil {
			buffer.Write(found[i].Data)
		} else {
			start := buffer.Len()
			if err := json.NewEncoder(buffer).Encode(items[i].Object); err != nil {
				return err
			}
			buffer.Truncate(buffer.Len() - len("\n"))
			b.cached.Keep(objects[i], buffer.Bytes()[start:])
		}
		if b.cached.Ends(objects[i], buffer.Len()) {
			if _, err := b.cached.Write(b.to, buffer.Bytes()); err != nil {
				return err
			}
			buffer.Reset()
		}
	}
	return nil
}
