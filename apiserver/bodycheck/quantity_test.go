package bodycheck

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apis/resource"
)

// limits returns a pod with a CPU limit, which is inserted verbatim.
func limits(value string) string {
	return `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":` + value + `}}}]}}`
}

func TestQuantitiesWithHugeExponentsAreRefused(t *testing.T) {
	const (
		inJSON     = runtime.ContentTypeJSON
		inYAML     = runtime.ContentTypeYAML
		inProtobuf = runtime.ContentTypeProtobuf
		jsonPatch  = string(types.JSONPatchType)
		merge      = string(types.MergePatchType)
	)
	for _, test := range []struct {
		rule, method, resource, contentType, body string
		// refused is a part of the message; empty passes.
		refused string
	}{
		{"an ordinary quantity passes", "POST", "pods", inJSON, limits(`"500m"`), ""},
		{"a large exponent passes", "POST", "pods", inJSON, limits(`"1e9999"`), ""},
		{"leading zeros do not make it larger", "POST", "pods", inJSON, limits(`"1e000003"`), ""},
		{"a huge exponent is refused", "POST", "pods", inJSON, limits(`"1e999999999"`), "spec.containers[0].resources.limits.cpu: quantity \"1e999999999\""},
		{"a huge negative exponent is refused", "PUT", "pods", inJSON, limits(`"1e-10000"`), "at most four digits"},
		{"a number with a huge exponent is refused", "POST", "pods", inJSON, limits(`0.1E99999`), "0.1E99999"},
		{"an escape sequence does not hide it", "PATCH", "pods", merge, limits(`"1\u0065-99999"`), "1e-99999"},
		{"an escape sequence in YAML does not hide it", "POST", "pods", inYAML, "spec: {containers: [{resources: {limits: {cpu: \"1\\x65-99999\"}}}]}", "1e-99999"},
		{"the case of a field's name does not hide it", "POST", "pods", inJSON, strings.Replace(limits(`"1e99999"`), "limits", "Limits", 1), "1e99999"},
		{"it is refused in protobuf", "POST", "pods", inProtobuf, "k8s\x00\x0a\x03cpu\x12\x09\x0a\x071e99999\x2a", "1e99999"},
		{"a hash elsewhere in protobuf passes", "POST", "pods", inProtobuf, "k8s\x00\x0a\x03sha\x12\x071e99999\x2a", ""},
		{"it is refused in a JSON patch", "PATCH", "pods", jsonPatch, `[{"op":"add","path":"/spec/containers/0/resources/limits/cpu","value":"1e99999"}]`, "1e99999"},
		{"it is refused inside the value of a JSON patch", "PATCH", "pods", jsonPatch, `[{"op":"add","path":"/spec/containers/-","value":{"resources":{"limits":{"cpu":"1e99999"}}}}]`, "1e99999"},
		{"a hash in a JSON patch passes", "PATCH", "pods", jsonPatch, `[{"op":"add","path":"/metadata/labels/commit","value":"1e99999"}]`, ""},
		{"a hash in a label passes", "POST", "pods", inJSON, `{"metadata":{"labels":{"commit":"4e12345"}},"spec":{"containers":[{"image":"a:4e12345"}]}}`, ""},
		{"a kind without quantities passes", "POST", "configmaps", inJSON, limits(`"1e99999"`), ""},
		{"invalid JSON passes, for the decoder to refuse", "POST", "pods", inJSON, `{"1e99999`, ""},
		{"a body over the limit passes, for the handler to refuse", "POST", "pods", inJSON, limits(`"1e99999` + strings.Repeat(" ", 2<<20) + `"`), ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := NewWithT(t)
			kinds := []*resource.Kind{
				resource.Type[*corev1.Pod]{Name: "pods"}.Kind(),
				resource.Type[*corev1.ConfigMap]{Name: "configmaps"}.Kind(),
			}
			handler := Filter(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				got, err := io.ReadAll(req.Body)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(string(got) == test.body).To(BeTrue())
			}), clientgoscheme.Codecs.WithoutConversion(), Checks(kinds, clientgoscheme.Scheme, nil), 1<<20, nil)
			req := httptest.NewRequest(test.method, "/api/v1/"+test.resource, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			req = req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{APIVersion: "v1", Resource: test.resource}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if test.refused == "" {
				g.Expect(w.Code).To(Equal(http.StatusOK), w.Body.String())
				return
			}
			g.Expect(w.Code).To(Equal(http.StatusBadRequest))
			g.Expect(strings.ReplaceAll(w.Body.String(), `\"`, `"`)).To(ContainSubstring(test.refused))
		})
	}
}
