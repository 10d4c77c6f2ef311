package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	jsonType      = "application/json"
	yamlType      = "application/yaml"
	protobufType  = "application/vnd.kubernetes.protobuf"
	jsonPatch     = "application/json-patch+json"
	mergePatch    = "application/merge-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// refusal is a request that must be refused, and how.
type refusal struct {
	request
	status int
	reason metav1.StatusReason
	// message is a part of the message.
	message string
}

// The paths of the object that bad input must not change. {ns} stands for the
// spec's namespace.
const (
	configMaps = "/api/v1/namespaces/{ns}/configmaps"
	kept       = configMaps + "/kept"
	pods       = "/api/v1/namespaces/{ns}/pods"
	deployment = "/apis/apps/v1/namespaces/{ns}/deployments"
)

var _ = Describe("bad input", Ordered, ContinueOnFailure, func() {
	var (
		k      *sandbox
		before string
	)
	BeforeAll(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, labels: {a: b}}, data: {sky: blue}}", "create", "-f", "-")
		before = send(request{method: http.MethodGet, path: here(kept, k)}).body
	})

	check := func(r refusal) {
		GinkgoHelper()
		r.path, r.body = here(r.path, k), here(r.body, k)
		got := send(r.request)
		Expect(got.status).To(Equal(r.status), got.body)
		status := got.asStatus()
		Expect(string(status.Reason)).To(Equal(string(r.reason)), got.body)
		Expect(status.Message).To(ContainSubstring(here(r.message, k)))
		Expect(status.Status).To(Equal(metav1.StatusFailure))
		Expect(int(status.Code)).To(Equal(r.status))

		expectLive()
		Expect(send(request{method: http.MethodGet, path: here(kept, k)}).body).To(Equal(before), "the object is unchanged")
	}

	for _, group := range []struct {
		name     string
		refusals []named
	}{
		{"in a body that cannot be read", unreadableBodies},
		{"in a body of another kind or version", otherKinds},
		{"in a field", wrongFields},
		{"that contradicts the URL", contradictions},
		{"in a patch", badPatches},
		{"in a query", badQueries},
		{"in a deletion", badDeletions},
		{"of a wrong type of content", wrongContentTypes},
		{"to a path or method that is not there", wrongPaths},
		{"that is too large or too deep", excesses},
	} {
		Describe(group.name, func() {
			for _, n := range group.refusals {
				It(n.name, func() { check(n.refusal) })
			}
		})
	}

	DescribeTable("unknown and duplicate fields are", func(level string, status int, warned bool) {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"strange"},"data":{"a":"1","a":"2"},"colour":"red","shape":"round"}`
		got := send(request{method: http.MethodPost, path: here(configMaps, k) + "?dryRun=All" + level, contentType: jsonType, body: body})
		Expect(got.status).To(Equal(status), got.body)
		said := strings.Join(got.header.Values("Warning"), "\n")
		if status == http.StatusBadRequest {
			said = got.asStatus().Message
			Expect(said).To(ContainSubstring("strict decoding error"))
			warned = true
		}
		for _, complaint := range []string{`unknown field "colour"`, `unknown field "shape"`, `duplicate field "data.a"`} {
			// In a header, quotes are escaped.
			Expect(strings.Contains(strings.ReplaceAll(said, `\"`, `"`), complaint)).To(Equal(warned), "%s in %q", complaint, said)
		}
	},
		Entry("refused by Strict, all of them named", "&fieldValidation=Strict", 400, false),
		Entry("warned of by Warn, one header each", "&fieldValidation=Warn", 201, true),
		Entry("warned of by default", "", 201, true),
		Entry("dropped by Ignore", "&fieldValidation=Ignore", 201, false),
	)

	DescribeTable("unknown fields of a patch are refused by Strict", func(contentType, body string) {
		got := send(request{method: http.MethodPatch, path: here(kept, k) + "?fieldManager=e2e&fieldValidation=Strict", contentType: contentType, body: body})
		Expect(got.status).To(BeElementOf(400, 422), got.body)
		Expect(got.asStatus().Message).To(ContainSubstring(`colour`))
	},
		Entry(nil, mergePatch, `{"colour":"red"}`),
		Entry(nil, strategicType, `{"colour":"red"}`),
		Entry(nil, jsonPatch, `[{"op":"add","path":"/colour","value":"red"}]`),
		Entry(nil, applyType, `{"apiVersion":"v1","kind":"ConfigMap","colour":"red"}`),
	)

	DescribeTable("duplicate fields of a patch are refused by Strict and warned of by default", func(contentType, body string) {
		path := here(kept, k) + "?dryRun=All&fieldManager=e2e"
		got := send(request{method: http.MethodPatch, path: path + "&fieldValidation=Strict", contentType: contentType, body: body})
		Expect(got.status).To(BeElementOf(400, 422), got.body)
		Expect(got.asStatus().Message).To(MatchRegexp(`"(data.)?sky"`))
		got = send(request{method: http.MethodPatch, path: path, contentType: contentType, body: body})
		Expect(got.status).To(Equal(200), got.body)
		Expect(got.header.Values("Warning")).To(ContainElement(ContainSubstring("sky")))
	},
		Entry(nil, mergePatch, `{"data":{"sky":"red","sky":"green"}}`),
		Entry(nil, strategicType, `{"data":{"sky":"red","sky":"green"}}`),
		Entry(nil, applyType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept"},"data":{"land":"red","sky":"green","sky":"blue"}}`),
		Entry(nil, applyType, "apiVersion: v1\nkind: ConfigMap\ndata: {sky: red, sky: blue}\n"),
	)

	It("a stale version is a conflict", func() {
		stale := strings.Replace(before, `"resourceVersion":"`, `"resourceVersion":"1`, 1)
		stale = strings.Replace(stale, "blue", "red", 1)
		check(refusal{request{method: http.MethodPut, path: kept, contentType: jsonType, body: stale}, 409, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version and try again"})
		check(refusal{request{method: http.MethodPatch, path: kept, contentType: mergePatch, body: `{"metadata":{"resourceVersion":"1"},"data":{"sky":"red"}}`}, 409, metav1.StatusReasonConflict, "the object has been modified"})
	})

	It("another object of the same name is a conflict", func() {
		other := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","uid":"11111111-2222-3333-4444-555555555555"}}`
		check(refusal{request{method: http.MethodPut, path: kept, contentType: jsonType, body: other}, 409, metav1.StatusReasonConflict, "UID"})
	})

	It("a protobuf message nested without end is refused, or read, and the server lives", func() {
		// JSONSchemaProps hold themselves (in the field not): the deepest that fits a body.
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
		body := protobuf("apiextensions.k8s.io/v1", "CustomResourceDefinition", nestedSchema(400_000))
		got := send(request{method: http.MethodPost, path: path, contentType: protobufType, body: body})
		Expect(got.status).To(BeElementOf(400, 413, 422), got.body)
		expectLive()
	})

	DescribeTable("a definition with a schema as deep as JSON allows does not harm the server", func(wrap, inner string, levels int) {
		schema := strings.Repeat(wrap, levels) + inner + strings.Repeat("}", strings.Count(wrap, "{")*levels)
		body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"deeps.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"deeps","kind":"Deep"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
		got := send(request{method: http.MethodPost, path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", contentType: jsonType, body: body})
		Expect(got.status).To(BeElementOf(201, 400, 413, 422, 504), got.body)
		expectLive()
	},
		Entry(nil, `{"not":`, `{"type":"object"}`, 9_000),
		Entry(nil, `{"type":"object","properties":{"a":`, `{"type":"string"}`, 4_000),
	)

	It("dryRun without a value is allowed", func() {
		got := send(request{method: http.MethodPost, path: here(configMaps, k) + "?dryRun", contentType: jsonType, body: configMap("ordinary")})
		Expect(got.status).To(Equal(201), got.body)
		Expect(send(request{method: http.MethodGet, path: here(configMaps, k) + "/ordinary"}).status).To(Equal(200))
	})

	It("an apply of only the type creates the object that the path names", func() {
		path := here(configMaps, k) + "/minimal?fieldManager=e2e"
		got := send(request{method: http.MethodPatch, path: path, contentType: applyType, body: "apiVersion: v1\nkind: ConfigMap\n"})
		Expect(got.status).To(Equal(201), got.body)
	})
})

// expectLive expects that the server is live: a busy one may be slow to say so.
func expectLive() {
	GinkgoHelper()
	Eventually(func() int { return send(request{method: http.MethodGet, path: "/livez"}).status }).Should(Equal(200))
}

// here fills in the spec's namespace.
func here(text string, k *sandbox) string { return strings.ReplaceAll(text, "{ns}", k.Namespace) }

// configMap is a good ConfigMap.
func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
}

// podWith is a Pod with something wrong in it.
func podWith(more string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"` + more + `}]}}`
}

// protobuf is a body in the binary envelope: the magic prefix, the type and
// the object's own bytes.
func protobuf(apiVersion, kind string, raw []byte) string {
	meta := append(bytesField(1, []byte(apiVersion)), bytesField(2, []byte(kind))...)
	return "k8s\x00" + string(bytesField(1, meta)) + string(bytesField(2, raw))
}

// bytesField is a length-delimited field of a protobuf message.
func bytesField(number byte, content []byte) []byte {
	out := binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))
	return append(out, content...)
}

// nestedSchema is a CustomResourceDefinition in protobuf whose schema holds
// itself to a depth.
func nestedSchema(depth int) []byte {
	const not = 28 // JSONSchemaProps.not
	// Built from the inside, backwards, so that it costs no more than its size.
	var reversed []byte
	for range depth {
		head := binary.AppendUvarint(nil, not<<3|2)
		head = binary.AppendUvarint(head, uint64(len(reversed)))
		slices.Reverse(head)
		reversed = append(reversed, head...)
	}
	slices.Reverse(reversed)
	schema := bytesField(1, reversed)                                        // CustomResourceValidation.openAPIV3Schema
	version := append(bytesField(1, []byte("v1")), bytesField(4, schema)...) // .name, .schema
	spec := append(bytesField(1, []byte("example.com")), bytesField(7, version)...)
	return append(bytesField(1, bytesField(1, []byte("deep.example.com"))), bytesField(2, spec)...)
}

// gzipped is text, compressed.
func gzipped(text string) string {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write([]byte(text))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	return buf.String()
}
