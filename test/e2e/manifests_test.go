package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var _ = Describe("manifests that people use", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	DescribeTable("are applied, left alone, compared and deleted", func(objects int, source ...string) {
		first := lines(k.run(append([]string{"apply"}, source...)...))
		k.afterwards(append([]string{"delete", "--ignore-not-found", "--wait=false"}, source...)...)
		Expect(first).To(And(HaveLen(objects), HaveEach(HaveSuffix(" created"))))

		again := lines(k.run(append([]string{"apply"}, source...)...))
		Expect(again).To(And(HaveLen(objects), HaveEach(HaveSuffix(" unchanged"))), "applied again")
		Expect(k.run(append([]string{"diff"}, source...)...)).To(BeEmpty())
		k.run(append([]string{"get"}, source...)...)

		serverSide := lines(k.run(append([]string{"apply", "--server-side"}, source...)...))
		Expect(serverSide).To(And(HaveLen(objects), HaveEach(HaveSuffix(" serverside-applied"))))

		k.run(append([]string{"delete"}, source...)...)
		Expect(k.run(append([]string{"get", "--ignore-not-found"}, source...)...)).To(BeEmpty())
	},
		Entry("the guestbook", 7, "-f", "testdata/guestbook.yaml"),
		Entry("WordPress with MySQL", 10, "-k", "testdata/wordpress"),
		Entry("an ingress controller", 13, "-f", "testdata/ingress-controller.yaml"),
		Entry("the Prometheus operator without its CRDs", 9, "-f", "testdata/prometheus-operator.yaml"),
	)
})

var _ = Describe("every kind", func() {
	const file = "testdata/kinds.yaml"

	It("is in the file", func(ctx SpecContext) {
		k := newSandbox(ctx)
		var served []string
		for _, row := range rows(k.run("api-resources", "--verbs=create,get,delete", "--no-headers")) {
			fields := strings.Fields(row)
			// Columns from the right: the short names may be absent.
			served = append(served, fields[len(fields)-3]+" "+fields[len(fields)-1])
		}
		var declared []string
		for _, obj := range readManifests(file) {
			declared = append(declared, fmt.Sprint(obj["apiVersion"], " ", obj["kind"]))
		}
		for _, kind := range served {
			// What other specs define is theirs to test.
			if !strings.Contains(kind, "example.") {
				Expect(declared).To(ContainElement(kind), "add an object of this kind to %s", file)
			}
		}
	})

	It("is created, left alone, compared, changed and deleted", func(ctx SpecContext) {
		k := newSandbox(ctx)
		objects := readManifests(file)
		out := lines(k.run("apply", "-f", file))
		k.afterwards("delete", "--ignore-not-found", "--wait=false", "-f", file)
		Expect(out).To(And(HaveLen(len(objects)), HaveEach(HaveSuffix(" created"))))
		Expect(lines(k.run("apply", "-f", file))).To(HaveEach(HaveSuffix(" unchanged")))
		Expect(k.run("diff", "-f", file)).To(BeEmpty())
		Expect(lines(k.run("get", "-f", file, "-o", "name"))).To(HaveLen(len(objects)))
		k.run("get", "-f", file)
		k.run("get", "-f", file, "-o", "wide")
		k.run("describe", "-f", file)

		Expect(lines(k.run("apply", "--server-side", "-f", file))).To(HaveEach(HaveSuffix(" serverside-applied")))
		Expect(lines(k.run("label", "-f", file, "changed=yes"))).To(HaveEach(HaveSuffix(" labeled")))
		Expect(lines(k.run("annotate", "-f", file, "changed=yes"))).To(HaveEach(HaveSuffix(" annotated")))
		Expect(lines(k.run("replace", "-f", file))).To(HaveEach(HaveSuffix(" replaced")))

		deleted := lines(k.run("delete", "--wait=false", "-f", file))
		Expect(deleted).To(HaveLen(len(objects)))
		remaining := k.run("get", "--ignore-not-found", "-f", file, "-o", "name")
		for _, name := range strings.Fields(remaining) {
			Expect(heldByDesign).To(ContainElement(name), "still there after its deletion")
		}
	})
})

// heldByDesign are objects that stay, terminating, until a controller has
// cleaned up behind them.
var heldByDesign = []string{
	"namespace/e2e-every",
	"persistentvolume/e2e-every",
	"persistentvolumeclaim/every",
	"customresourcedefinition.apiextensions.k8s.io/everies.e2e.example.net",
}

// readManifests reads a file of several objects.
func readManifests(path string) []object {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var objects []object
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var obj object
		Expect(yaml.Unmarshal([]byte(document), &obj)).To(Succeed())
		objects = append(objects, obj)
	}
	return slices.DeleteFunc(objects, func(obj object) bool { return obj == nil })
}
