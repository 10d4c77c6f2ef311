package apifake

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	req, ok := parse(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	if req.Verb != "list" && req.Verb != "watch" {
		s.requests = append(s.requests, req)
	}
	var err error
	if s.fault != nil {
		err = s.fault(req)
	}
	s.mu.Unlock()
	switch {
	case errors.Is(err, ErrDrop):
		panic(http.ErrAbortHandler)
	case err != nil:
		fail(w, err)
	case req.Verb == "list":
		s.list(w, req, r.URL.Query().Get("fieldSelector"))
	case req.Verb == "watch":
		s.watch(w, r, req)
	default:
		o, err := s.do(req)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, o)
	}
}

// parse returns false for a path that is not that of a resource, such as /version.
func parse(r *http.Request) (Request, bool) {
	body, _ := io.ReadAll(r.Body)
	req := Request{Body: body}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := 2 // api/v1
	if parts[0] == "apis" {
		group = 3 // apis/apps/v1
	}
	if len(parts) <= group {
		return req, false
	}
	parts = parts[group:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = parts[2]
	}
	switch r.Method {
	case http.MethodGet:
		switch req.Verb = "get"; {
		case req.Name == "" && r.URL.Query().Get("watch") != "":
			req.Verb = "watch"
		case req.Name == "":
			req.Verb = "list"
		}
	default:
		req.Verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	}
	return req, true
}

func fail(w http.ResponseWriter, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer(w, int(cmp.Or(body.Code, http.StatusInternalServerError)), &body)
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) list(w http.ResponseWriter, req Request, field string) {
	s.mu.Lock()
	items := []Object{}
	for _, o := range s.objects {
		if resourceOf(o) == req.Resource && matches(o, field) {
			items = append(items, o.DeepCopyObject().(Object))
		}
	}
	version := strconv.FormatInt(s.version, 10)
	s.mu.Unlock()
	slices.SortFunc(items, func(a, b Object) int {
		return cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	kind := empty(req.Resource).GetObjectKind().GroupVersionKind()
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": map[string]string{"resourceVersion": version}, "items": items,
	})
}

// watch serves all changes since the requested version.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, req Request) {
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	me := &watch{resource: req.Resource, field: r.URL.Query().Get("fieldSelector"), events: make(chan event, 1000), stop: make(chan struct{})}
	s.mu.Lock()
	for _, e := range s.history {
		if e.version > from {
			me.send(e)
		}
	}
	s.watches[me] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, me)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-me.events:
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
			w.(http.Flusher).Flush()
		case <-me.stop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// do handles a request that changes or reads one object.
func (s *Server) do(req Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := schema.GroupResource{Resource: req.Resource}
	key := keyOf(req.Resource, req.Namespace, req.Name)
	old := s.objects[key]
	if old == nil && req.Verb != "create" {
		return nil, apierrors.NewNotFound(of, req.Name)
	}
	switch req.Verb {
	case "create":
		o := empty(req.Resource)
		if err := json.Unmarshal(req.Body, o); err != nil {
			return nil, err
		}
		key = keyOf(req.Resource, req.Namespace, o.GetName())
		if s.objects[key] != nil {
			return nil, apierrors.NewAlreadyExists(of, o.GetName())
		}
		o.SetUID("")
		s.keep(key, o, "ADDED")
		return o, nil
	case "update":
		o := empty(req.Resource)
		if err := json.Unmarshal(req.Body, o); err != nil {
			return nil, err
		}
		if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(of, req.Name, errors.New("the object has been modified"))
		}
		s.keep(key, o, "MODIFIED")
		return o, nil
	case "patch":
		return s.patch(key, old, req)
	case "delete":
		return old, s.delete(key, old, req)
	}
	return old, nil
}

func (s *Server) patch(key string, old Object, req Request) (any, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, req.Body, empty(req.Resource))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o := empty(req.Resource)
	if err := json.Unmarshal(after, o); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if o.GetUID() != old.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: req.Resource}, req.Name,
			fmt.Errorf("the UID in the precondition is %s, that of the object %s", o.GetUID(), old.GetUID()))
	}
	s.keep(key, o, "MODIFIED")
	return o, nil
}

func (s *Server) delete(key string, old Object, req Request) error {
	options := &metav1.DeleteOptions{}
	if len(req.Body) > 0 {
		if err := json.Unmarshal(req.Body, options); err != nil {
			return err
		}
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != old.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: req.Resource}, req.Name, errors.New("the UID in the precondition does not match"))
	}
	s.remove(key)
	return nil
}
