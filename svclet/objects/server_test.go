package objects

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server is a fake API server with the few requests that a store makes.
type server struct {
	*httptest.Server
	clock clock.PassiveClock

	mutex    sync.Mutex
	version  int
	held     map[string]client.Object // by path
	watchers map[*watcher]bool
	// requests are the received requests, by verb and path.
	requests map[string]int
	// refuse, if set, is the status code of all answers.
	refuse int
	// oldest is the first version from which a watch is possible.
	oldest int
	tokens []authenticationv1.TokenRequest
	// certificates is the version of certificates.k8s.io that is served; v1 by default.
	certificates string
}

var listKinds = map[string]string{
	"configmaps": "ConfigMapList", "secrets": "SecretList", "services": "ServiceList",
	"clustertrustbundles": "ClusterTrustBundleList", "podcertificaterequests": "PodCertificateRequestList",
}

type watcher struct {
	prefix, selector string
	events           chan metav1.WatchEvent
	broken           chan struct{}
}

func newServer(t *testing.T) *server {
	s := &server{
		clock: clock.RealClock{}, held: map[string]client.Object{}, watchers: map[*watcher]bool{},
		requests: map[string]int{}, version: 10, certificates: "v1",
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.breakWatches()
		s.Server.Close()
	})
	return s
}

func (s *server) client(t *testing.T) client.WithWatch {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[string]meta.RESTScope{
		"ConfigMap": meta.RESTScopeNamespace, "Secret": meta.RESTScopeNamespace, "Service": meta.RESTScopeNamespace,
		"ServiceAccount": meta.RESTScopeNamespace, "PersistentVolumeClaim": meta.RESTScopeNamespace, "PersistentVolume": meta.RESTScopeRoot,
	} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), scope)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"), meta.RESTScopeNamespace)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		mapper.Add(schema.GroupVersionKind{Group: certificatesv1.GroupName, Version: version, Kind: "ClusterTrustBundle"}, meta.RESTScopeRoot)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := client.NewWithWatch(config, client.Options{
		Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	served := "/apis/certificates.k8s.io/" + s.certificates + "/"
	s.mutex.Unlock()
	place := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/"), served)
	selector := r.URL.Query().Get("fieldSelector")
	name := strings.TrimPrefix(selector, "metadata.name=")
	verb := map[bool]string{false: "list", true: "watch"}[r.URL.Query().Get("watch") != ""]
	if r.Method == http.MethodPost {
		verb = "create"
	}
	s.mutex.Lock()
	s.requests[strings.TrimSuffix(verb+" "+place+"/"+name, "/")]++
	refuse := s.refuse
	s.mutex.Unlock()
	switch {
	case refuse != 0:
		reply(w, refuse, &metav1.Status{Status: metav1.StatusFailure, Code: int32(refuse), Reason: metav1.StatusReasonForbidden, Message: "not yours"})
	case strings.HasPrefix(place, "/"):
		http.NotFound(w, r)
	case strings.HasSuffix(place, "/token"):
		s.issue(w, r)
	case verb == "create":
		s.request(w, r, place)
	case verb == "watch":
		s.watch(w, r, place, selector)
	default:
		s.list(w, place, selector)
	}
}

func reply(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err)
	}
}

// selects reports whether a list or watch selects an object, by its path.
func selects(prefix, selector, at string, object client.Object) bool {
	if !strings.Contains(prefix, "/") { // cluster-scoped, or of all namespaces
		if path.Base(path.Dir(at)) != prefix {
			return false
		}
	} else if path.Dir(at) != prefix {
		return false
	}
	set := fields.Set{"metadata.name": path.Base(at)}
	switch o := object.(type) {
	case *certificatesv1.ClusterTrustBundle:
		set["spec.signerName"] = o.Spec.SignerName
	case *certificatesv1.PodCertificateRequest:
		set["spec.nodeName"] = string(o.Spec.NodeName)
	}
	return fields.ParseSelectorOrDie(selector).Matches(set)
}

func (s *server) list(w http.ResponseWriter, place, selector string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if object, ok := s.held[place]; ok {
		reply(w, http.StatusOK, object)
		return
	}
	kind, isList := listKinds[path.Base(place)]
	if !isList {
		reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: path.Base(path.Dir(place))}, path.Base(place)).Status())
		return
	}
	items := []client.Object{}
	for at, object := range s.held {
		if selects(place, selector, at, object) {
			items = append(items, object)
		}
	}
	reply(w, http.StatusOK, map[string]any{
		"kind": kind, "apiVersion": s.groupVersion(path.Base(place)), "metadata": map[string]string{"resourceVersion": fmt.Sprint(s.version)}, "items": items,
	})
}

// groupVersion returns that of a resource. The caller holds mutex.
func (s *server) groupVersion(resource string) string {
	if resource == "clustertrustbundles" || resource == "podcertificaterequests" {
		return certificatesv1.GroupName + "/" + s.certificates
	}
	return "v1"
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, place, selector string) {
	self := &watcher{prefix: place, selector: selector, events: make(chan metav1.WatchEvent, 100), broken: make(chan struct{})}
	var from int
	if _, err := fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from); err != nil {
		reply(w, http.StatusBadRequest, &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()})
		return
	}
	s.mutex.Lock()
	if from < s.oldest {
		s.mutex.Unlock()
		reply(w, http.StatusGone, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
		return
	}
	s.watchers[self] = true
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		delete(s.watchers, self)
		s.mutex.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-self.broken:
			return
		case event := <-self.events:
			if json.NewEncoder(w).Encode(event) != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

func (s *server) issue(w http.ResponseWriter, r *http.Request) {
	var request authenticationv1.TokenRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		reply(w, http.StatusBadRequest, &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()})
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tokens = append(s.tokens, request)
	life := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	request.Status.Token = fmt.Sprintf("token %d", len(s.tokens))
	request.Status.ExpirationTimestamp = metav1.NewTime(s.clock.Now().Add(life))
	reply(w, http.StatusCreated, request)
}

// request creates a PodCertificateRequest, with the name of the pod and a number.
func (s *server) request(w http.ResponseWriter, r *http.Request, place string) {
	request := &certificatesv1.PodCertificateRequest{}
	if err := json.NewDecoder(r.Body).Decode(request); err != nil {
		reply(w, http.StatusBadRequest, &metav1.Status{Status: metav1.StatusFailure, Message: err.Error()})
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.keep(fmt.Sprintf("%s/%s-%d", place, request.Spec.PodName, s.requests["create "+place]), request)
	reply(w, http.StatusCreated, request)
}

// put creates or updates an object with a path like "namespaces/x/secrets/y".
func (s *server) put(at string, object client.Object) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.keep(at, object)
}

// keep is put. The caller holds mutex.
func (s *server) keep(at string, object client.Object) {
	_, there := s.held[at]
	s.held[at] = object
	s.tell(at, object, map[bool]string{false: "ADDED", true: "MODIFIED"}[there])
}

func (s *server) remove(at string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	object := s.held[at]
	delete(s.held, at)
	s.tell(at, object, "DELETED")
}

func (s *server) tell(at string, object client.Object, kind string) {
	s.version++
	object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(s.groupVersion(path.Base(path.Dir(at))), reflect.TypeOf(object).Elem().Name()))
	object.SetResourceVersion(fmt.Sprint(s.version))
	object.SetName(path.Base(at))
	if parts := strings.Split(at, "/"); parts[0] == "namespaces" {
		object.SetNamespace(parts[1])
	}
	event := metav1.WatchEvent{Type: kind}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	event.Object.Raw = raw
	for w := range s.watchers {
		if selects(w.prefix, w.selector, at, object) {
			w.events <- event
		}
	}
}

func (s *server) breakWatches() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hangUp()
}

// hangUp is breakWatches. The caller holds mutex.
func (s *server) hangUp() {
	for w := range s.watchers {
		close(w.broken)
		delete(s.watchers, w)
	}
}

func (s *server) setRefuse(code int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.refuse = code
}

func (s *server) asked(request string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.requests[request]
}

func (s *server) watching() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.watchers)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// changes records the changes that a store reports.
type changes chan []types.UID

func (c changes) wait(t *testing.T) []types.UID {
	t.Helper()
	select {
	case pods := <-c:
		return pods
	case <-time.After(time.Minute):
		t.Fatal("nothing has changed within a minute")
		return nil
	}
}
