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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
			}), clientgoscheme.Codecs.WithoutConversion(), test.checks, 10)
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
	}), clientgoscheme.Codecs.WithoutConversion(), nil, 10)
	body := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/apis", body))
}
