package bodycheck

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/apis/resource"
)

func TestValuesOfStrategicMergePatchesThatFieldsCannotHoldAreRefused(t *testing.T) {
	kinds := []*resource.Kind{resource.Type[*appsv1.Deployment]{Name: "deployments"}.Kind()}
	const patchType = "application/strategic-merge-patch+json"
	for _, test := range []struct {
		rule, subresource, contentType, body string
		refused                              string // empty passes
	}{
		{"an integer that fits passes", "", patchType, `{"spec":{"replicas":2147483647}}`, ""},
		{"an integer beyond 32 bits", "", patchType, `{"spec":{"replicas":4294967297}}`, "spec.replicas: Invalid value: 4294967297: must fit in 32 bits"},
		{"an integer beyond 64 bits", "", patchType, `{"spec":{"replicas":36893488147419103233}}`, "spec.replicas: Invalid value: 3.6893488147419103e+19: must fit in 32 bits"},
		{"a number with an exponent", "", patchType, `{"spec":{"replicas":-1e10}}`, "must fit in 32 bits"},
		{"an integer beyond 64 bits in a field of 64", "", patchType, `{"metadata":{"generation":9223372036854775808}}`, "metadata.generation: Invalid value: 9.223372036854776e+18: must fit in 64 bits"},
		{"an integer in an element of a list", "", patchType, `{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":4294967376}]}]}}}}`, "spec.template.spec.containers[0].ports[0].containerPort: Invalid value"},
		{"an integer after a text with quotes", "", patchType, `{"metadata":{"labels":{"a":"\"b\\"}},"spec":{"replicas":4294967297}}`, "must fit in 32 bits"},
		{"an integer in the status", "status", patchType, `{"status":{"replicas":4294967297}}`, "status.replicas: Invalid value"},
		{"an integer in a scale", "scale", patchType, `{"spec":{"replicas":4294967297}}`, "spec.replicas: Invalid value"},
		{"parameters of the media type do not hide it", "", patchType + "; a=", `{"spec":{"replicas":4294967297}}`, "must fit in 32 bits"},
		{"a quantity with a huge exponent", "", patchType, `{"spec":{"template":{"spec":{"overhead":{"cpu":"1e99999"}}}}}`, "spec.template.spec.overhead.cpu: quantity"},
		{"an escape sequence does not hide it", "", patchType, `{"spec":{"template":{"spec":{"overhead":{"\"cpu":"1\u0065-99999"}}}}}`, "overhead.\"cpu: quantity"},
		{"directives are no fields", "", patchType, `{"spec":{"$setElementOrder/x":[{"a":4294967297}],"$retainKeys":["replicas"],"strategy":{"$patch":"delete"}}}`, ""},
		{"what is no object is left to the handler", "", patchType, `[4294967297]`, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			info := &request.RequestInfo{IsResourceRequest: true, Name: "c", Namespace: "n", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: test.subresource}
			code, got, _ := filtered(t, Checks(kinds, clientgoscheme.Scheme, nil), req, info)
			if test.refused == "" && (code != http.StatusOK || got != test.body) || test.refused != "" && (code != http.StatusBadRequest || !strings.Contains(got, test.refused)) {
				t.Errorf("got %d and %s", code, got)
			}
		})
	}
}

// BenchmarkStrategicValues checks the status of a pod as its agent reports it.
func BenchmarkStrategicValues(b *testing.B) {
	body := []byte(`{"metadata":{"uid":"213310e4-b371-45e1-b3d9-da65f69d1559"},"status":{"conditions":[` +
		strings.Repeat(`{"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z","status":"True","type":"Ready","observedGeneration":1},`, 5) +
		`{}],"containerStatuses":[{"imageID":"registry.example.org/web@sha256:0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8","restartCount":0,"name":"web"}]}}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if mayBeTooLarge(body) {
			b.Fatal("an ordinary status is read")
		}
	}
}
