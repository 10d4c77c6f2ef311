package apifake

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Object is an object that the server stores.
type Object interface {
	metav1.Object
	runtime.Object
}

// Request is a request to the server.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb, Resource, Namespace, Name, Subresource string
	Body                                         []byte
}

// String returns a text like "patch pods/status ns/name".
func (r Request) String() string {
	what := r.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	return strings.TrimRight(fmt.Sprintf("%s %s %s", r.Verb, what, strings.TrimLeft(r.Namespace+"/"+r.Name, "/")), " /")
}

// Server is a fake API server.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	version  int64
	objects  map[string]Object
	history  []event
	watches  map[*watch]bool
	requests []Request
	fault    func(Request) error
	drop     func(Object)
}

// watch is a watch of a client.
type watch struct {
	resource, field string
	events          chan event
	stop            chan struct{}
}

type event struct {
	Type   string `json:"type"`
	Object Object `json:"object"`

	version int64
}

// ErrDrop is the fault of a broken connection.
var ErrDrop = errors.New("drop")

// New starts a server that stops at the end of the test.
func New(t testing.TB) *Server {
	s := &Server{objects: map[string]Object{}, watches: map[*watch]bool{}, version: 100}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.EndWatches()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Client returns a client of one group and version. Its connections are closed at
// the end of the test.
func (s *Server) Client(t testing.TB, gv schema.GroupVersion) rest.Interface {
	path := "/apis"
	if gv.Group == "" {
		path = "/api"
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: s.http.URL, APIPath: path, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion(), ContentType: runtime.ContentTypeJSON},
	}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Config returns a client configuration. The server supports JSON only.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.http.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// Core returns a client of the core group.
func (s *Server) Core(t testing.TB) rest.Interface { return s.Client(t, corev1.SchemeGroupVersion) }

// Fail makes requests fail for which f returns an error: an API status, or
// [ErrDrop].
func (s *Server) Fail(f func(Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Drop makes the server change each object before it is stored, as one of an older release
// does that lacks some fields.
func (s *Server) Drop(f func(Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop = f
}

// Requests returns the requests since the last call, without lists and watches.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// EndWatches ends all watches.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		close(w.stop)
		delete(s.watches, w)
	}
}

// Put creates or replaces an object on behalf of another client, and returns it as
// stored.
func (s *Server) Put(o Object) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = o.DeepCopyObject().(Object)
	key := keyOf(resourceOf(o), o.GetNamespace(), o.GetName())
	kind := "MODIFIED"
	if s.objects[key] == nil {
		kind = "ADDED"
	}
	s.keep(key, o, kind)
	return o.DeepCopyObject().(Object)
}

// Remove deletes an object at once, on behalf of another client.
func (s *Server) Remove(o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(keyOf(resourceOf(o), o.GetNamespace(), o.GetName()))
}

// Forget deletes an object without a watch event.
func (s *Server) Forget(o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, keyOf(resourceOf(o), o.GetNamespace(), o.GetName()))
}

// Pod returns the pod with this name, or nil.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	pod, _ := s.get("pods", namespace, name).(*corev1.Pod)
	return pod
}

// Node returns the node with this name, or nil.
func (s *Server) Node(name string) *corev1.Node {
	node, _ := s.get("nodes", "", name).(*corev1.Node)
	return node
}

// Lease returns the lease of this node, or nil.
func (s *Server) Lease(name string) *coordinationv1.Lease {
	lease, _ := s.get("leases", corev1.NamespaceNodeLease, name).(*coordinationv1.Lease)
	return lease
}

func (s *Server) get(resource, namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[keyOf(resource, namespace, name)]; o != nil {
		return o.DeepCopyObject().(Object)
	}
	return nil
}

func keyOf(resource, namespace, name string) string { return resource + "/" + namespace + "/" + name }

func resourceOf(o Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "pods"
	case *corev1.Node:
		return "nodes"
	case *resourceapi.ResourceClaim:
		return "resourceclaims"
	default:
		return "leases"
	}
}

// empty returns an object of the resource, with its kind.
func empty(resource string) Object {
	switch resource {
	case "pods":
		return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	case "nodes":
		return &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	case "resourceclaims":
		return &resourceapi.ResourceClaim{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"}}
	default:
		return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	}
}

// keep stores an object with a new version and notifies watches, unless nothing has changed.
func (s *Server) keep(key string, o Object, kind string) {
	if s.drop != nil {
		s.drop(o)
	}
	if apiequality.Semantic.DeepEqual(o, s.objects[key]) {
		return
	}
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	}
	o.GetObjectKind().SetGroupVersionKind(empty(resourceOf(o)).GetObjectKind().GroupVersionKind())
	s.objects[key] = o
	s.send(kind, o)
}

func (s *Server) remove(key string) {
	o := s.objects[key]
	if o == nil {
		return
	}
	delete(s.objects, key)
	s.version++
	last := o.DeepCopyObject().(Object)
	last.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.send("DELETED", last)
}

func (s *Server) send(kind string, o Object) {
	e := event{Type: kind, Object: o.DeepCopyObject().(Object), version: s.version}
	s.history = append(s.history, e)
	for w := range s.watches {
		w.send(e)
	}
}

func (w *watch) send(e event) {
	if w.resource == resourceOf(e.Object) && matches(e.Object, w.field) {
		w.events <- e
	}
}

// matches reports whether the object has the value of a field selector that nodes use.
func matches(o Object, field string) bool {
	name, value, _ := strings.Cut(field, "=")
	switch name {
	case "spec.nodeName":
		return o.(*corev1.Pod).Spec.NodeName == value
	case "metadata.name":
		return o.GetName() == value
	}
	return true
}
