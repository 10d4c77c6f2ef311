package proxy

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer serves objects that change, as much as a proxy needs of an API server.
type apiServer struct {
	url string

	mu          sync.Mutex
	collections map[string]*collection // by path
	version     int
	// changed is closed at the next change.
	changed chan struct{}
}

// collection is the objects of a resource, and what has happened to them.
type collection struct {
	metav1.TypeMeta

	items  map[string]ctrlclient.Object
	events []event
}

type event struct {
	version int
	content []byte
}

// newAPIServer starts an API server in a namespace.
func newAPIServer(t *testing.T, at *namespace, o objects) *apiServer {
	t.Helper()
	s := &apiServer{changed: make(chan struct{}), collections: map[string]*collection{}}
	for path, kind := range map[string]metav1.TypeMeta{
		"/api/v1/services": {APIVersion: "v1", Kind: "Service"}, "/api/v1/nodes": {APIVersion: "v1", Kind: "Node"},
		"/apis/discovery.k8s.io/v1/endpointslices": {APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
	} {
		s.collections[path] = &collection{TypeMeta: kind, items: map[string]ctrlclient.Object{}}
	}
	s.set(t, o)
	var listener net.Listener
	must(t, at.in(func() (err error) { listener, err = net.Listen("tcp4", "127.0.0.1:0"); return err }))
	s.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: s}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // it ends by Close
	t.Cleanup(func() { server.Close(); serving.Wait() })
	return s
}

// set replaces all objects. Each kind's events are in the order of the objects, after those
// of deleted ones.
func (s *apiServer) set(t *testing.T, o objects) {
	t.Helper()
	var services, endpointSlices []ctrlclient.Object
	for i := range o.services {
		services = append(services, &o.services[i])
	}
	for i := range o.slices {
		endpointSlices = append(endpointSlices, &o.slices[i])
	}
	s.replace(t, "/api/v1/nodes", []ctrlclient.Object{&o.node})
	s.replace(t, "/api/v1/services", services)
	s.replace(t, "/apis/discovery.k8s.io/v1/endpointslices", endpointSlices)
}

func (s *apiServer) replace(t *testing.T, path string, all []ctrlclient.Object) {
	t.Helper()
	s.mu.Lock()
	gone := maps.Clone(s.collections[path].items)
	for _, o := range all {
		delete(gone, ctrlclient.ObjectKeyFromObject(o).String())
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		s.record(t, path, "DELETED", gone[key].DeepCopyObject().(ctrlclient.Object))
	}
	s.mu.Unlock()
	for _, o := range all {
		s.put(t, path, o)
	}
}

// put creates an object, or replaces one that is different.
func (s *apiServer) put(t *testing.T, path string, o ctrlclient.Object) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	o = o.DeepCopyObject().(ctrlclient.Object)
	before, exists := s.collections[path].items[ctrlclient.ObjectKeyFromObject(o).String()]
	if !exists {
		s.record(t, path, "ADDED", o)
		return
	}
	o.SetResourceVersion(before.GetResourceVersion())
	o.GetObjectKind().SetGroupVersionKind(before.GetObjectKind().GroupVersionKind())
	if !equality.Semantic.DeepEqual(before, o) {
		s.record(t, path, "MODIFIED", o)
	}
}

// record adds an event of an object, which it changes. The mutex is held.
func (s *apiServer) record(t *testing.T, path, kind string, o ctrlclient.Object) {
	t.Helper()
	c := s.collections[path]
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.GetObjectKind().SetGroupVersionKind(c.GroupVersionKind())
	content, err := json.Marshal(map[string]any{"type": kind, "object": o})
	must(t, err)
	c.events = append(c.events, event{s.version, content})
	if key := ctrlclient.ObjectKeyFromObject(o).String(); kind == "DELETED" {
		delete(c.items, key)
	} else {
		c.items[key] = o
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	failed := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		// A client that is gone asks again.
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code)})
	}
	path, name := r.URL.Path, ""
	if of, is := strings.CutPrefix(path, "/api/v1/nodes/"); is {
		path, name = "/api/v1/nodes", of
	}
	c, found := s.collections[path]
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet: // an event
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(metav1.TypeMeta{APIVersion: "v1", Kind: "Status"})
	case !found:
		failed(http.StatusNotFound, metav1.StatusReasonNotFound)
	case q.Get("sendInitialEvents") != "": // as servers without the feature WatchList answer: then the client lists
		failed(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case q.Get("watch") != "":
		s.watch(w, r, c)
	default:
		s.list(w, c, name)
	}
}

// list sends all objects, or the one with a name and without a namespace.
func (s *apiServer) list(w http.ResponseWriter, c *collection, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer any = c.items["/"+name]
	if name == "" {
		answer = struct {
			metav1.TypeMeta `json:",inline"`
			metav1.ListMeta `json:"metadata"`

			Items []ctrlclient.Object `json:"items"`
		}{
			metav1.TypeMeta{APIVersion: c.APIVersion, Kind: c.Kind + "List"}, metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)},
			slices.Collect(maps.Values(c.items)),
		}
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone asks again
}

// watch sends the events after a version.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, c *collection) {
	seen, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for {
		s.mu.Lock()
		first, _ := slices.BinarySearchFunc(c.events, seen+1, func(e event, version int) int { return e.version - version })
		events, changed := c.events[first:], s.changed
		s.mu.Unlock()
		for _, e := range events {
			seen = e.version
			if _, err := w.Write(e.content); err != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
