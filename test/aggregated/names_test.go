package aggregated

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

const deployment = `
apiVersion: apps.svc.dev/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: registry.example.com/web:1}]}
`

var _ = Describe("names", func() {
	It("serves every group under the domain", func() {
		Eventually(out(onHost, "", "api-resources", "--api-group=core.svc.dev")).Should(And(ContainSubstring("pods "), Not(ContainSubstring("namespaces "))))
		Eventually(out(onHost, "", "api-resources", "--api-group=apps.svc.dev")).Should(ContainSubstring("apps.svc.dev/v1"))
		Expect(kubectl(onHost, "get", "pods.core.svc.dev", "-n", newNamespace())).To(BeEmpty())
	})

	It("says the domain's names in objects, lists, tables, watches and owner references", func(ctx SpecContext) {
		n := newNamespace()
		apply(onHost, deployment, "create", "-n", n)
		made := parse(kubectl(onHost, "get", "deployments.apps.svc.dev", "web", "-n", n, "-o", "json", "--show-managed-fields"))
		Expect(made["apiVersion"]).To(Equal("apps.svc.dev/v1"))
		managers := made["metadata"].(object)["managedFields"].([]any)
		Expect(managers[0].(object)["apiVersion"]).To(Equal("apps.svc.dev/v1"))
		Expect(kubectl(onHost, "get", "deployments.apps.svc.dev", "web", "-n", n, "-o", "yaml")).To(HavePrefix("apiVersion: apps.svc.dev/v1\n"))
		Expect(kubectl(onHost, "get", "deployments.apps.svc.dev", "-n", n)).To(ContainSubstring("UP-TO-DATE"))

		By("an owner reference that the fleet's controller writes")
		var replicaSets object
		Eventually(func() []any {
			replicaSets = parse(kubectl(onHost, "get", "--raw", "/apis/apps.svc.dev/v1/namespaces/"+n+"/replicasets"))
			return replicaSets["items"].([]any)
		}).Should(HaveLen(1))
		Expect(replicaSets["apiVersion"]).To(Equal("apps.svc.dev/v1"))
		owner := replicaSets["items"].([]any)[0].(object)["metadata"].(object)["ownerReferences"].([]any)[0].(object)
		Expect(owner["apiVersion"]).To(Equal("apps.svc.dev/v1"))

		By("the same through the fleet's own address, in Kubernetes' names")
		Expect(kubectl(onFleet, "get", "deployment", "web", "-n", n, "-o", "jsonpath={.apiVersion}")).To(Equal("apps/v1"))
		sets, err := fleetClient.AppsV1().ReplicaSets(n).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(sets.Items[0].OwnerReferences[0].APIVersion).To(Equal("apps/v1"))

		By("events of a watch")
		Expect(firstLine(ctx, "/apis/apps.svc.dev/v1/namespaces/"+n+"/deployments?watch=1")).To(ContainSubstring(`"apiVersion":"apps.svc.dev/v1"`))

		By("metadata in protobuf")
		client, err := metadata.NewForConfig(host.config)
		Expect(err).NotTo(HaveOccurred())
		ofDomain := client.Resource(schema.GroupVersionResource{Group: "apps.svc.dev", Version: "v1", Resource: "replicasets"}).Namespace(n)
		list, err := ofDomain.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items[0].OwnerReferences[0].APIVersion).To(Equal("apps.svc.dev/v1"))
		watch, err := ofDomain.Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		event := <-watch.ResultChan()
		Expect(event.Object.(*metav1.PartialObjectMetadata).OwnerReferences[0].APIVersion).To(Equal("apps.svc.dev/v1"))
	})

	It("accepts the samples of the documentation", func() {
		Expect(kubectl(onHost, "apply", "-k", "../../config/samples", "--dry-run=server")).
			To(And(ContainSubstring("deployment.apps.svc.dev/web created (server dry run)"), ContainSubstring("service.core.svc.dev/web created (server dry run)")))
	})

	It("applies and patches in all four formats", func() {
		n := newNamespace()
		apply(onHost, deployment, "apply", "--server-side", "-n", n)
		apply(onHost, strings.Replace(deployment, "replicas: 2", "replicas: 3", 1), "apply", "--server-side", "-n", n)
		patch := func(kind, body string) {
			kubectl(onHost, "patch", "deployments.apps.svc.dev", "web", "-n", n, "--type="+kind, "-p", body)
		}
		patch("merge", `{"spec":{"paused":true}}`)
		apply(onHost, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"owner"}}`, "create", "-n", n)
		uid := kubectl(onHost, "get", "configmaps.core.svc.dev", "owner", "-n", n, "-o", "jsonpath={.metadata.uid}")
		owner := `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","name":"owner","uid":"` + uid + `"}`
		patch("json", `[{"op":"add","path":"/metadata/ownerReferences","value":[`+owner+`]}]`)
		Expect(kubectl(onFleet, "get", "deployment", "web", "-n", n, "-o", "jsonpath={.metadata.ownerReferences[0].apiVersion}")).To(Equal("v1"))
		made := parse(kubectl(onHost, "get", "deployments.apps.svc.dev", "web", "-n", n, "-o", "json", "--show-managed-fields"))
		Expect(made["spec"].(object)).To(And(HaveKeyWithValue("paused", true), HaveKeyWithValue("replicas", BeEquivalentTo(3))))
		conflict := fails(onHost, strings.Replace(deployment, "replicas: 2", "replicas: 4", 1), "apply", "--server-side", "--field-manager=other", "-n", n, "-f", "-")
		Expect(conflict).To(ContainSubstring(`conflict with "kubectl"`))
		Expect(conflict).To(ContainSubstring(".spec.replicas"))
	})

	It("says the domain's names in the scale of an object, and changes replicas by it", func(ctx SpecContext) {
		n := newNamespace()
		apply(onHost, deployment, "create", "-n", n)
		path := "/apis/apps.svc.dev/v1/namespaces/" + n + "/deployments/web/scale"
		scale := parse(kubectl(onHost, "get", "--raw", path))
		Expect(scale).To(And(HaveKeyWithValue("apiVersion", "autoscaling.svc.dev/v1"), HaveKeyWithValue("kind", "Scale")))
		Expect(scale["spec"]).To(HaveKeyWithValue("replicas", BeEquivalentTo(2)))

		scale["spec"] = object{"replicas": 5}
		delete(scale["metadata"].(object), "resourceVersion") // the controller writes the status meanwhile
		body, err := json.Marshal(scale)
		Expect(err).NotTo(HaveOccurred())
		changed := parse(kubectl(onHost, "replace", "--raw", path, "-f", writeFile("scale.json", string(body))))
		Expect(changed).To(HaveKeyWithValue("apiVersion", "autoscaling.svc.dev/v1"))
		Expect(kubectl(onHost, "get", "deployments.apps.svc.dev", "web", "-n", n, "-o", "jsonpath={.spec.replicas}")).To(Equal("5"))

		By("the names of the host, which are not those of this server")
		refused := send(ctx, host.config, launch.Request{Method: "PUT", Path: path, ContentType: "application/json",
			Body: strings.Replace(string(body), "autoscaling.svc.dev/v1", "autoscaling/v1", 1)})
		Expect(refused.Status).To(Equal(http.StatusBadRequest), refused.Body)
		Expect(kubectl(onFleet, "get", "--raw", "/apis/apps/v1/namespaces/"+n+"/deployments/web/scale")).To(ContainSubstring(`"apiVersion":"autoscaling/v1"`))
	})

	It("says the domain's names in OpenAPI", func(ctx SpecContext) {
		Eventually(out(onHost, "", "explain", "deployments", "--api-version=apps.svc.dev/v1")).
			Should(And(ContainSubstring("GROUP:      apps.svc.dev"), ContainSubstring("KIND:       Deployment"), ContainSubstring("VERSION:    v1")))
		Eventually(out(onHost, "", "explain", "pods.spec.nodeName", "--api-version=core.svc.dev/v1")).Should(ContainSubstring("FIELD: nodeName"))

		direct := rest.CopyConfig(host.config)
		direct.Host = backendURL
		document := func(g Gomega, path string) object {
			answer := send(ctx, direct, launch.Request{Method: "GET", Path: path, Accept: "application/json"})
			g.Expect(answer.Status).To(Equal(http.StatusOK), "%s: %s", path, answer.Body)
			return parse(answer.Body)
		}
		By("the document of all groups")
		v2 := document(Default, "/openapi/v2")
		Expect(v2["paths"]).To(And(HaveKey("/apis/core.svc.dev/v1/namespaces/{namespace}/pods"), HaveKey("/apis/apps.svc.dev/v1/namespaces/{namespace}/deployments/{name}/scale")))
		checkNames(v2)

		By("the documents of the groups")
		Eventually(func(g Gomega) { // the definitions of other specs end meanwhile
			index := document(g, "/openapi/v3")["paths"].(object)
			g.Expect(index).To(And(HaveKey("apis/core.svc.dev/v1"), HaveKey("apis/apps.svc.dev/v1"), HaveKey("apis/storage.svc.dev/v1"), Not(HaveKey("api/v1")), Not(HaveKey("apis/apps/v1"))))
			for path, at := range index {
				if strings.HasPrefix(path, "api") {
					g.Expect(path).To(MatchRegexp(`^apis/[^/]+\.svc\.dev(/|$)`))
				}
				v3 := document(g, at.(object)["serverRelativeURL"].(string))
				g.Expect(v3["paths"]).NotTo(BeEmpty(), path)
				checkNames(v3)
			}
		}).Should(Succeed())
	})

	It("names the domain's group in errors", func() {
		n := newNamespace()
		Expect(fails(onHost, "", "get", "deployments.apps.svc.dev", "none", "-n", n)).To(ContainSubstring(`deployments.apps.svc.dev "none" not found`))
		Expect(fails(onHost, "", "get", "pods.core.svc.dev", "none", "-n", n)).To(ContainSubstring(`pods.core.svc.dev "none" not found`))
		bad := strings.Replace(deployment, "replicas: 2", "replicas: -1", 1)
		Expect(fails(onHost, bad, "create", "-n", n, "-f", "-")).To(ContainSubstring(`The Deployment "web" is invalid: spec.replicas`))
		Expect(fails(onHost, "", "create", "--raw", "/apis/core.svc.dev/v1/namespaces/"+n+"/pods", "-f", writeFile("host-pod.json", `{"apiVersion":"v1","kind":"Pod"}`))).
			To(ContainSubstring("the API version in the data (v1) does not match the expected API version (core.svc.dev/v1)"))
	})

	It("keeps a reference to an object of the host apart from one to an object of the fleet", func() {
		n := newNamespace()
		made := parse(apply(onHost, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"owned","ownerReferences":[
			{"apiVersion":"apps/v1","kind":"Deployment","name":"of-host","uid":"a"},{"apiVersion":"apps.svc.dev/v1","kind":"Deployment","name":"of-fleet","uid":"b"}]}}`,
			"create", "--dry-run=server", "-o", "json", "-n", n))
		owners := made["metadata"].(object)["ownerReferences"].([]any)
		Expect(owners[0].(object)["apiVersion"]).To(Equal("apps/v1"))
		Expect(owners[1].(object)["apiVersion"]).To(Equal("apps.svc.dev/v1"))
	})

	It("serves custom resources of the fleet's own definitions", func() {
		n := newNamespace()
		apply(onHost, `
apiVersion: apiextensions.svc.dev/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com.svc.dev}
spec:
  group: example.com.svc.dev
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`, "create")
		DeferCleanup(func() {
			kubectl(onHost, "delete", "customresourcedefinitions.apiextensions.svc.dev", "widgets.example.com.svc.dev")
		})
		kubectl(onHost, "wait", "customresourcedefinitions.apiextensions.svc.dev/widgets.example.com.svc.dev", "--for=condition=Established", "--timeout=3m")
		registerVersions(schema.GroupVersion{Group: "example.com.svc.dev", Version: "v1"})
		DeferCleanup(func() { kubectl(onHost, "delete", "apiservice", "v1.example.com.svc.dev") })
		widget := "apiVersion: example.com.svc.dev/v1\nkind: Widget\nmetadata: {name: one}\nspec: {size: 3}\n"
		Eventually(out(onHost, widget, "apply", "--server-side", "-n", n, "-f", "-")).ShouldNot(BeEmpty())
		Expect(kubectl(onHost, "get", "widgets.example.com.svc.dev", "-n", n, "-o", "yaml")).To(ContainSubstring("apiVersion: example.com.svc.dev/v1\n  kind: Widget"))
		Eventually(out(onFleet, "", "get", "widgets.example.com", "one", "-n", n, "-o", "jsonpath={.apiVersion}")).Should(Equal("example.com/v1"))
		Expect(kubectl(onFleet, "get", "crd", "widgets.example.com", "-o", "jsonpath={.spec.group}")).To(Equal("example.com"))
	})

	It("says the domain's names in the audit log", func() {
		n := newNamespace()
		apply(onHost, `{"apiVersion":"core.svc.dev/v1","kind":"ConfigMap","metadata":{"name":"audited"}}`, "create", "-n", n)
		Eventually(func(g Gomega) string { // the line of the response is written after it
			log, err := os.ReadFile(filepath.Join(dir, "audit.log"))
			g.Expect(err).NotTo(HaveOccurred())
			var found string
			for line := range strings.SplitSeq(string(log), "\n") {
				if strings.Contains(line, `"audited"`) && strings.Contains(line, n) {
					found = line
				}
			}
			return found
		}).Should(And(ContainSubstring(`"apiGroup":"core.svc.dev"`), ContainSubstring(`"requestURI":"/apis/core.svc.dev/v1/namespaces/`),
			ContainSubstring(`"requestObject":{"kind":"ConfigMap","apiVersion":"core.svc.dev/v1"`)))
	})
})

// checkNames checks that all paths and kinds of a document of OpenAPI have the domain's names.
func checkNames(document object) {
	GinkgoHelper()
	for path := range document["paths"].(object) {
		if strings.HasPrefix(path, "/api") {
			Expect(path).To(Or(Equal("/apis/"), MatchRegexp(`^/apis/[^/]+\.svc\.dev/`)))
		}
	}
	var kinds int
	var visit func(value any)
	visit = func(value any) {
		switch value := value.(type) {
		case []any:
			for _, element := range value {
				visit(element)
			}
		case object:
			for name, member := range value {
				visit(member)
				if name != "x-kubernetes-group-version-kind" {
					continue
				}
				all, isList := member.([]any)
				if !isList {
					all = []any{member}
				}
				for _, kind := range all {
					kinds++
					// These have the version v1 of no group in every answer.
					ofNone := Or(HaveKeyWithValue("kind", "DeleteOptions"), HaveKeyWithValue("kind", "Status"), HaveKeyWithValue("kind", HavePrefix("API")))
					Expect(kind).To(Or(HaveKeyWithValue("group", HaveSuffix(".svc.dev")), And(HaveKeyWithValue("group", ""), ofNone)))
				}
			}
		}
	}
	visit(document)
	if _, described := document["paths"].(object)["/version/"]; !described {
		Expect(kinds).To(BeNumerically(">", 0))
	}
}

// firstLine returns the first line that the host answers with.
func firstLine(ctx context.Context, path string) string {
	GinkgoHelper()
	return lineOf(ctx, path, "", func() {})
}

// lineOf returns the first line with some words that the host answers with, after the answer
// has begun and meanwhile has returned.
func lineOf(ctx context.Context, path, words string, meanwhile func()) string {
	GinkgoHelper()
	client, err := rest.HTTPClientFor(host.config)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host.config.Host+path, nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := client.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	meanwhile()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		if strings.Contains(line, words) {
			return line
		}
	}
}
