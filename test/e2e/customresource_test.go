package e2e

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
)

const gadget = `
apiVersion: e2e.example.com/v1
kind: Gadget
metadata: {name: lamp}
spec: {size: 3, colour: red, parts: [{name: bulb, count: 1}]}
`

var _ = Describe("custom resources", Ordered, everyRelease, since("1.25"), func() {
	var k *sandbox
	BeforeAll(func(ctx SpecContext) {
		k = newSandbox(ctx)
		Expect(k.run("apply", "-f", "testdata/crd.yaml")).To(Equal("customresourcedefinition.apiextensions.k8s.io/gadgets.e2e.example.com created\n"))
		DeferCleanup(func() {
			k.run("delete", "-f", "testdata/crd.yaml")
			Eventually(k.resources).ShouldNot(ContainElement(HavePrefix("gadgets ")), "other specs read what is discovered")
		})
		k.run("wait", "crd/gadgets.e2e.example.com", "--for=condition=Established", "--timeout=3m")
		Eventually(k.resources).Should(ContainElement(HavePrefix("gadgets ")))
	})

	It("are applied, with their defaults", func() {
		Expect(k.pipe(gadget, "apply", "-f", "-")).To(Equal("gadget.e2e.example.com/lamp created\n"))
		Expect(k.pipe(gadget, "apply", "-f", "-")).To(Equal("gadget.e2e.example.com/lamp unchanged\n"))
		Expect(k.field("{.spec.mode}", "gadget/lamp")).To(Equal("auto"))
		Expect(k.pipe(gadget, "diff", "-f", "-")).To(BeEmpty())
	})

	It("are explained from their schema", func() {
		Eventually(func() string {
			out, _, _ := k.try("", "explain", "gadgets.spec.size")
			return out
		}).Should(And(ContainSubstring("<integer>"), ContainSubstring("The size, in inches")))
	})

	It("show the columns that the definition names", func() {
		table := k.run("get", "gdg")
		Expect(header(table)).To(Equal("NAME SIZE COLOUR AGE"))
		Expect(lines(table)[1]).To(MatchRegexp(`^lamp +3 +red +[0-9ms]+$`))
		Expect(header(k.run("get", "gdg", "-o", "wide"))).To(Equal("NAME SIZE COLOUR AGE MODE"))
	})

	It("are rejected when they violate the schema or a rule", func() {
		Expect(k.fails("{apiVersion: e2e.example.com/v1, kind: Gadget, metadata: {name: bad}, spec: {size: big}}", "apply", "--validate=false", "-f", "-")).
			To(And(ContainSubstring(`The Gadget "bad" is invalid`), ContainSubstring("spec.size: Invalid value")))
		Expect(k.fails("{apiVersion: e2e.example.com/v1, kind: Gadget, metadata: {name: bad}, spec: {size: 99}}", "apply", "-f", "-")).
			To(ContainSubstring("spec.size in body should be less than or equal to 50"))
		Expect(k.fails("{apiVersion: e2e.example.com/v1, kind: Gadget, metadata: {name: bad}, spec: {size: 40, colour: red}}", "apply", "-f", "-")).
			To(ContainSubstring("large gadgets are never red"))
		Expect(k.fails("{apiVersion: e2e.example.com/v1, kind: Gadget, metadata: {name: bad}, spec: {size: 1, shape: round}}", "apply", "-f", "-")).
			To(ContainSubstring(`unknown field "spec.shape"`))
		Expect(k.fails("", "patch", "gadget", "lamp", "--type=merge", "-p", `{"spec":{"colour":"mauve"}}`)).
			To(ContainSubstring(`Unsupported value: "mauve"`))
	})

	It("have a status and a scale of their own", func() {
		k.run("patch", "gadget", "lamp", "--type=merge", "-p", `{"status":{"phase":"Lit"}}`)
		Expect(k.field("{.status.phase}", "gadget/lamp")).To(BeEmpty())
		k.run("patch", "gadget", "lamp", "--type=merge", "--subresource=status", "-p", `{"status":{"phase":"Lit"},"spec":{"size":9}}`)
		Expect(k.field("{.status.phase} {.spec.size} {.metadata.generation}", "gadget/lamp")).To(Equal("Lit 3 1"))
		Expect(k.run("scale", "gadget/lamp", "--replicas=5")).To(ContainSubstring("scaled"))
		Expect(k.field("{.spec.replicas}", "gadget/lamp")).To(Equal("5"))
	})

	It("merge lists by key under server-side apply", func() {
		for manager, part := range map[string]string{"ann": "bulb", "bob": "shade"} {
			k.pipe("{apiVersion: e2e.example.com/v1, kind: Gadget, metadata: {name: torch}, spec: {parts: [{name: "+part+"}]}}", "apply", "--server-side", "--field-manager="+manager, "-f", "-")
		}
		Expect(strings.Fields(k.field("{.spec.parts[*].name}", "gadget/torch"))).To(ConsistOf("bulb", "shade"))
	})

	It("are watched", func() {
		watch := k.start("get", "gadgets", "-w", "--output-watch-events")
		Eventually(watch).Should(gbytes.Say("ADDED +lamp"))
		k.run("label", "gadget", "lamp", "a=b")
		Eventually(watch).Should(gbytes.Say("MODIFIED +lamp"))
	})

	It("answer protobuf with 415 and 406, and do not drop the connection", func() {
		path := "/apis/e2e.example.com/v1/namespaces/" + k.Namespace + "/gadgets"
		posted := send(request{method: http.MethodPost, path: path, contentType: "application/vnd.kubernetes.protobuf", body: "k8s\x00\x0a\x04\x0a\x02v1"})
		Expect(posted.status).To(Equal(http.StatusUnsupportedMediaType), posted.body)
		Expect(send(request{method: http.MethodGet, path: path, accept: "application/vnd.kubernetes.protobuf"}).status).To(Equal(http.StatusNotAcceptable))
	})

	It("are rejected when they are too large for etcd, nested too deep or do not match the schema", func() {
		path := "/apis/e2e.example.com/v1/namespaces/" + k.Namespace + "/gadgets"
		large := `{"apiVersion":"e2e.example.com/v1","kind":"Gadget","metadata":{"name":"large"},"spec":{"mode":"` + strings.Repeat("x", 2<<20) + `"}}`
		for _, r := range []struct {
			request request
			status  int
			message string
		}{
			{post(path, jsonType, large), 413, "larger than etcd accepts"},
			{post(path, jsonType, `{"apiVersion":"e2e.example.com/v1","kind":"Gadget","metadata":{"name":"deep"},"spec":`+strings.Repeat(`{"a":`, 200_000)+"1"+strings.Repeat("}", 200_000)+"}"), 400, "exceeded max depth"},
			{request{method: http.MethodPatch, path: path + "/lamp?fieldManager=e2e", contentType: applyType, body: `{"apiVersion":"e2e.example.com/v1","kind":"Gadget","spec":{"size":"big"}}`}, 400, ".spec.size: expected numeric"},
			{request{method: http.MethodPatch, path: path + "/lamp", contentType: mergePatch, body: `{"spec":{"size":"big"}}`}, 422, "spec.size: Invalid value"},
		} {
			got := send(r.request)
			Expect(got.status).To(Equal(r.status), got.body)
			Expect(got.asStatus().Message).To(ContainSubstring(r.message))
		}
	})

	It("rejects strategic merge patches, which need Go types", func() {
		Expect(k.fails("", "patch", "gadget", "lamp", "--type=strategic", "-p", `{"spec":{"size":4}}`)).To(ContainSubstring("application/strategic-merge-patch+json is not supported by e2e.example.com/v1, Kind=Gadget"))
	})

	It("need a structural schema", func() {
		Expect(k.fails(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.e2e.example.com}, spec: {group: e2e.example.com, scope: Namespaced, names: {plural: things, kind: Thing}, versions: [{name: v1, served: true, storage: true}]}}`, "apply", "-f", "-")).
			To(ContainSubstring("openAPIV3Schema: Required value"))
	})

	It("are deleted with their definition", func() {
		k.run("delete", "gadget", "--all")
		Expect(k.run("get", "gadgets", "-o", "name")).To(BeEmpty())
	})
})
