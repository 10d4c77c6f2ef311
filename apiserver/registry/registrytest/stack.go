// Package registrytest owns the test server of declarations: it serves a few
// kinds as the API server does, from HTTP to etcd.
package registrytest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	definitions "svc.dev/svc/apis/openapi"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/etcd"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/itemcache"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/reservation"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/apiserver/view"
)

// maxBody bounds the bodies of requests, in bytes.
const maxBody = 3 << 20

// Stack serves kinds in all their versions, without authentication.
type Stack struct {
	Kinds    []*resource.Kind
	Scheme   *runtime.Scheme
	Backend  *storage.Backend
	Env      *resource.Env
	Registry *registry.Registry
	Groups   []view.Group
	Handler  http.Handler

	t *testing.T
}

// Start serves the kinds on an etcd of their own until the test ends.
func Start(t *testing.T, declarations ...resource.Declaration) *Stack {
	t.Helper()
	return StartWith(t, nil, declarations...)
}

// StartWith is Start with an admission plugin.
func StartWith(t *testing.T, plugin admission.Interface, declarations ...resource.Declaration) *Stack {
	t.Helper()
	s := &Stack{t: t}
	server, err := etcd.Start(t.Context(), etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	s.must(err)
	t.Cleanup(server.Stop)
	for _, d := range declarations {
		s.Kinds = append(s.Kinds, d.Kind())
	}
	s.Scheme, err = apis.NewScheme(s.Kinds)
	s.must(err)
	s.Backend, err = storage.Open(storage.Config{Servers: server.Endpoints(), SharedWatches: true, PartWatches: true})
	s.must(err)
	t.Cleanup(func() {
		if err := s.Backend.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Registry = registry.New()
	s.Env = &resource.Env{
		Clock:         clock.RealClock{},
		Objects:       s.Registry.Objects,
		Authorizer:    authorizerfactory.NewAlwaysAllowAuthorizer(),
		Rules:         authorizerfactory.NewAlwaysAllowAuthorizer(),
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil }),
		Etcd:          s.Backend.Check,
		Agents:        resource.Agents{Transport: http.DefaultTransport},
		Reservations:  reservation.New(s.Backend.Client().KV, s.Backend.Prefix(), clock.RealClock{}).Pool,
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")},
		NodePorts:     resource.PortRange{From: 30000, To: 30009},
	}
	codec, versioner := storage.KindCodec(s.Scheme, s.Kinds)
	t.Cleanup(s.Registry.Destroy)
	s.must(s.Registry.Install(s.Kinds, s.Scheme, s.Backend.RESTOptions(codec, versioner), s.Env))
	s.install(plugin)
	return s
}

func (s *Stack) install(plugin admission.Interface) {
	s.t.Helper()
	docs := openapi.New("test", "1", definitions.Definitions, func() *runtime.Scheme { return apis.NewExternalScheme(s.Kinds) }, clock.RealClock{})
	codecs := serializer.NewCodecFactory(s.Scheme)
	checks := bodycheck.Checks(s.Kinds, s.Scheme, nil)
	handler := genericapiserver.NewAPIServerHandler("test", codecs, func(handler http.Handler) http.Handler {
		return inprocess.Chain(bodycheck.Filter(handler, codecs, checks, maxBody, nil))
	}, http.NotFoundHandler())
	routes, err := view.View{
		FastJSON:          true,
		Items:             itemcache.New(itemcache.DefaultLimit, clock.RealClock{}),
		Scheme:            s.Scheme,
		Versions:          func(k *resource.Kind) []schema.GroupVersionKind { return k.GVKs() },
		Converter:         docs.TypeConverter,
		Admission:         plugin,
		Authorizer:        authorizerfactory.NewAlwaysAllowAuthorizer(),
		Equivalents:       runtime.NewEquivalentResourceRegistry(),
		MinRequestTimeout: time.Minute,
	}.Install(handler.GoRestfulContainer, s.Registry)
	s.must(err)
	s.Groups = routes.Groups
	docs.Install(handler.GoRestfulContainer, routes, handler.NonGoRestfulMux)
	s.Handler = handler
}

func (s *Stack) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Answer is the response to a request.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
	t      *testing.T
}

// Do sends a request. A body that is a string is YAML; other bodies are marshalled.
// header is pairs of a key and a value.
func (s *Stack) Do(method, path string, body any, header ...string) *Answer {
	s.t.Helper()
	var data []byte
	var err error
	if doc, ok := body.(string); ok {
		data, err = yaml.YAMLToJSON([]byte(doc))
	} else if body != nil {
		data, err = json.Marshal(body)
	}
	s.must(err)
	resp := s.Send(method, path, data, header...)
	defer resp.Body.Close()
	answer := &Answer{Code: resp.StatusCode, Header: resp.Header, t: s.t}
	answer.Body, err = io.ReadAll(resp.Body)
	s.must(err)
	return answer
}

// Send is Do with the body as it is, and returns the response unread, as a
// watch needs it.
func (s *Stack) Send(method, path string, body []byte, header ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://test"+path, bytes.NewReader(body))
	s.must(err)
	req.Header.Set("Accept", "application/json")
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := inprocess.Transport{Handler: s.Handler}.RoundTrip(req)
	s.must(err)
	return resp
}

// Patch sends a patch: "merge", "json", "strategic-merge" or "apply".
func (s *Stack) Patch(kind, path string, body any) *Answer {
	s.t.Helper()
	return s.Do(http.MethodPatch, path, body, "Content-Type", map[string]string{
		"merge": "application/merge-patch+json", "json": "application/json-patch+json",
		"strategic-merge": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
	}[kind])
}

// Want fails the test unless the answer has the status and, in its body, all
// of the texts.
func (a *Answer) Want(code int, texts ...string) *Answer {
	a.t.Helper()
	if a.Code != code {
		a.t.Fatalf("answered %d, want %d: %s", a.Code, code, a.Body)
	}
	for _, text := range texts {
		if !strings.Contains(string(a.Body), text) {
			a.t.Errorf("the answer does not contain %q: %s", text, a.Body)
		}
	}
	return a
}

// Object is the body as an object.
func (a *Answer) Object() *unstructured.Unstructured {
	a.t.Helper()
	obj := &unstructured.Unstructured{}
	a.Into(&obj.Object)
	return obj
}

// Status is the body as the status of an error.
func (a *Answer) Status() *metav1.Status {
	a.t.Helper()
	status := &metav1.Status{}
	a.Into(status)
	return status
}

// Into decodes the body.
func (a *Answer) Into(to any) {
	a.t.Helper()
	if err := json.Unmarshal(a.Body, to); err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
}

// Field is the value at a path of the body ("spec", "replicas"); nil if there
// is none.
func (a *Answer) Field(path ...string) any {
	a.t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(a.Object().Object, path...)
	if err != nil {
		a.t.Fatal(err)
	}
	return value
}
