package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

var _ = Describe("manifests that people use", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("include the metrics of svc itself", func() {
		// They name their namespace, so the sandbox's own is left out.
		k.Namespace = ""
		k.run("apply", "-k", "../../config/standalone", "--dry-run=client")
		k.run("apply", "-f", "../../config/standalone/namespace.yaml")
		k.afterwards("delete", "-f", "../../config/standalone/namespace.yaml", "--wait=false", "--ignore-not-found")
		Expect(lines(k.run("apply", "-k", "../../config/standalone", "--dry-run=server", "--validate=strict"))).To(HaveLen(8))
		Expect(lines(k.run("apply", "-k", "../../config/rbac", "--dry-run=server", "--validate=strict"))).To(HaveLen(2))
	})

	DescribeTable("are applied, left alone, compared and deleted", func(objects int, source ...string) {
		first := lines(k.run(append([]string{"apply"}, source...)...))
		k.afterwards(append([]string{"delete", "--ignore-not-found", "--wait=false"}, source...)...)
		Expect(first).To(And(HaveLen(objects), HaveEach(HaveSuffix(" created"))))

		again := k.run(append([]string{"apply"}, source...)...)
		Expect(lines(again)).To(HaveLen(objects))
		expectUnchanged(again)
		Expect(k.run(append([]string{"diff"}, source...)...)).To(BeEmpty())
		k.run(append([]string{"get"}, source...)...)

		// What defaulting changed within an atomic field, the client-side apply owns.
		serverSide := lines(k.run(append([]string{"apply", "--server-side", "--force-conflicts"}, source...)...))
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
	var (
		k    *sandbox
		file string
	)
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		content, err := os.ReadFile("testdata/kinds.yaml")
		Expect(err).NotTo(HaveOccurred())
		file = filepath.Join(GinkgoT().TempDir(), "kinds.yaml")
		Expect(os.WriteFile(file, bytes.ReplaceAll(content, []byte("NAMESPACE"), []byte(k.Namespace)), 0o600)).To(Succeed())
	})

	It("is in the file", func() {
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
				Expect(declared).To(ContainElement(kind), "add an object of this kind to testdata/kinds.yaml")
			}
		}
	})

	It("is created, left alone, compared, changed and deleted", func() {
		objects := readManifests(file)
		out := lines(k.run("apply", "-f", file))
		k.afterwards("delete", "--ignore-not-found", "--wait=false", "-f", file)
		Expect(out).To(And(HaveLen(len(objects)), HaveEach(HaveSuffix(" created"))))
		expectUnchanged(k.run("apply", "-f", file))
		Eventually(k.out("", "diff", "-f", file)).Should(BeEmpty()) // the server may yet write the status of definitions and APIServices
		Expect(lines(k.run("get", "-f", file, "-o", "name"))).To(HaveLen(len(objects)))
		k.run("get", "-f", file)
		k.run("get", "-f", file, "-o", "wide")
		k.run("describe", "-f", file)

		Expect(lines(k.run("apply", "--server-side", "--force-conflicts", "-f", file))).To(HaveEach(HaveSuffix(" serverside-applied")))
		Expect(lines(k.run("label", "-f", file, "changed=yes"))).To(HaveEach(HaveSuffix(" labeled")))
		Expect(lines(k.run("annotate", "-f", file, "changed=yes"))).To(HaveEach(HaveSuffix(" annotated")))
		Eventually(func(g Gomega) []string { // or write it in between
			stored := k.run("get", "-f", file, "-o", "yaml")
			return lines(k.out(stored, "replace", "-f", "-")(g))
		}).Should(HaveEach(HaveSuffix(" replaced")))

		deleted := lines(k.run("delete", "--wait=false", "-f", file))
		Expect(deleted).To(HaveLen(len(objects)))
		remaining := k.run("get", "--ignore-not-found", "-f", file, "-o", "name")
		for _, name := range strings.Fields(remaining) {
			Expect(heldByDesign).To(ContainElement(name), "still there after its deletion")
		}
	})
})

// expectUnchanged checks a second apply of the same objects.
func expectUnchanged(out string) {
	GinkgoHelper()
	for _, line := range lines(out) {
		object, verdict, _ := strings.Cut(line, " ")
		if alwaysPatched.MatchString(object) {
			Expect(verdict).To(Equal("configured"), object)
		} else {
			Expect(verdict).To(Equal("unchanged"), object)
		}
	}
}

// alwaysPatched are objects for which kubectl sends a patch every time, also to
// kube-apiserver: it compares lists without keys with their defaults (the
// volume claims of a StatefulSet) and cannot see that the server wrote the same
// otherwise (stringData, minReadySeconds: 0, cpu: "0.5"); and it always replaces
// a budget's selector. The server changes nothing.
var alwaysPatched = regexp.MustCompile(`^(` + strings.Join([]string{
	`statefulset\.apps/.*`, `poddisruptionbudget\.policy/.*`, `secret/alertmanager-main`,
	`deployment\.apps/ingress-nginx-controller`, `deployment\.apps/wordpress`,
}, "|") + `)$`)

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
