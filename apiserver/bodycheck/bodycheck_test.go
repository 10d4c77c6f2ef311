package bodycheck

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apiserver/nodeproxy"
	"svc.dev/svc/apiserver/release/fields"
)

func TestFilterRunsTheChecksInOrder(t *testing.T) {
	appending := func(suffix string) Check {
		return Check{Name: suffix, Select: func(*http.Request) Func {
			return func(body []byte) ([]byte, error) { return append(body, suffix...), nil }
		}}
	}
	refusing := Check{Name: "refusing", Select: func(*http.Request) Func {
		return func(body []byte) ([]byte, error) { return nil, errors.New("refused: " + string(body)) }
	}}
	unconcerned := Check{Name: "unconcerned", Select: func(*http.Request) Func { return nil }}
	for _, test := range []struct {
		rule   string
		checks []Check
		body   io.Reader
		want   string // the body that the handler gets
		err    string // a part of the answer
	}{
		{"without a check the body is not touched", nil, strings.NewReader("body"), "body", ""},
		{"an unconcerned check does not read the body", []Check{unconcerned}, strings.NewReader("body"), "body", ""},
		{"each check gets the body of the one before", []Check{appending("-a"), unconcerned, appending("-b")}, strings.NewReader("body"), "body-a-b", ""},
		{"the first refusal is the answer", []Check{appending("-a"), refusing, appending("-b")}, strings.NewReader("body"), "", "refused: body-a"},
		{"an empty body is checked", []Check{appending("-a")}, strings.NewReader(""), "-a", ""},
		{"a body over the limit passes unchecked", []Check{refusing}, strings.NewReader("longer than the limit"), "longer than the limit", ""},
		{"a body that cannot be read is refused", []Check{appending("-a")}, iotest.ErrReader(errors.New("connection lost")), "", "reading the body: connection lost"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := NewWithT(t)
			handled := false
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				handled = true
				got, err := io.ReadAll(req.Body)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(got)).To(Equal(test.want))
			}), clientgoscheme.Codecs.WithoutConversion(), test.checks, 10, nil)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis", test.body))
			g.Expect(handled).To(Equal(test.err == ""))
			if test.err != "" {
				g.Expect(w.Code).To(Equal(http.StatusBadRequest))
				g.Expect(w.Body.String()).To(ContainSubstring(test.err))
			}
		})
	}
}

func TestABodyThatTheHandlerCannotReadIsTheClientsError(t *testing.T) {
	g := NewWithT(t)
	handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, err := io.ReadAll(req.Body)
		g.Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		g.Expect(err).To(MatchError("reading the body: " + io.ErrUnexpectedEOF.Error()))
	}), clientgoscheme.Codecs.WithoutConversion(), nil, 10, nil)
	body := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis", body))
}

func TestTheBodyOfAProxiedRequestIsNotRead(t *testing.T) {
	table, kinds := coreKinds(t)
	checks := Checks(kinds, clientgoscheme.Scheme, fields.New(28, table))
	connects := nodeproxy.NewConnects(kinds)
	for _, test := range []struct {
		path    string
		checked bool
	}{
		{"/api/v1/namespaces/ns/services/web/proxy/api/v1/namespaces/ns/services/s", false},
		{"/api/v1/namespaces/ns/services/web/proxy", false},
		{"/api/v1/namespaces/ns/pods/p/proxy/", false},
		{"/api/v1/nodes/n/proxy/run", false},
		{"/api/v1/namespaces/ns/pods/p/exec", false},
		{"/api/v1/namespaces/ns/services/web", true},
		{"/api/v1/namespaces/ns/services/web/status", true},
		{"/api/v1/nodes/n/status", true},
	} {
		for _, contentType := range []string{"application/apply-patch+yaml", "application/merge-patch+json", "application/vnd.kubernetes.protobuf"} {
			t.Run(contentType+" "+test.path, func(t *testing.T) {
				g := NewWithT(t)
				body := &counted{Reader: strings.NewReader(`{"apiVersion": "v1", "kind": "Service", "spec": {"trafficDistribution": "PreferClose"}}`)}
				before := -1
				handler := Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { before = body.reads }),
					clientgoscheme.Codecs.WithoutConversion(), checks, 1000, connects.Proxies)
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, test.path, body)
				req.Header.Set("Content-Type", contentType)
				resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
				info, err := resolver.NewRequestInfo(req)
				g.Expect(err).NotTo(HaveOccurred())
				handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(request.WithRequestInfo(req.Context(), info)))
				g.Expect(before > 0).To(Equal(test.checked), "the body was read %d times before the handler", before)
			})
		}
	}
}

// counted counts the reads of a body.
type counted struct {
	io.Reader
	reads int
}

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return c.Reader.Read(p)
}
