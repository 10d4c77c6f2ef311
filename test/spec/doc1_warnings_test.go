package spec

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: field validation", func() {
	It("Warn adds a warning for each unknown or duplicate field", func(ctx SpecContext) {
		var unknown []string
		var body strings.Builder
		for i := range 90 {
			field := fmt.Sprintf("field%02d%s", i, strings.Repeat("x", 60))
			unknown = append(unknown, fmt.Sprintf(`unknown field %q`, field))
			fmt.Fprintf(&body, `,%q:1`, field)
		}
		resp := send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps?dryRun=All", ContentType: "application/json",
			Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"many"},"data":{"a":"1","a":"2"}` + body.String() + `}`})
		Expect(resp.Status).To(Equal(201), resp.Body)
		Expect(len(resp.Header["Warning"])).To(BeNumerically("<", 80), "header lines, of which Python's http.client takes a hundred")
		warnings, errs := utilnet.ParseWarningHeaders(resp.Header["Warning"])
		Expect(errs).To(BeEmpty())
		var texts []string
		for _, warning := range warnings {
			texts = append(texts, warning.Text)
		}
		Expect(texts).To(ConsistOf(append(unknown, `duplicate field "data.a"`)))
	})
	It("Strict names all unknown and duplicate fields", func(ctx SpecContext) {
		resp := send(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps?dryRun=All&fieldValidation=Strict", ContentType: "application/json",
			Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"many","bogus":1},"data":{"a":"1","a":"2"},"one":1,"two":2}`})
		Expect(failed(resp, 400).Message).To(And(ContainSubstring(`unknown field "metadata.bogus"`), ContainSubstring(`unknown field "one"`),
			ContainSubstring(`unknown field "two"`), ContainSubstring(`duplicate field "data.a"`)))
	})
})
