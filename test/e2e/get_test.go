package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl get", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	Context("of one object", func() {
		BeforeEach(func() { k.pipe(webDeployment, "apply", "-f", "-") })

		It("prints a table, and a wider one", func() {
			narrow := k.run("get", "deploy", "web")
			Expect(header(narrow)).To(Equal("NAME READY UP-TO-DATE AVAILABLE AGE"))
			Expect(lines(narrow)[1]).To(MatchRegexp(`^web +0/2 +0 +0 +[0-9ms]+$`))
			wide := k.run("get", "deploy", "web", "-o", "wide")
			Expect(header(wide)).To(Equal("NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR"))
			Expect(lines(wide)[1]).To(MatchRegexp(`web +nginx:1.25 +app=web$`))
			Expect(header(k.run("get", "deploy", "web", "--show-labels"))).To(HaveSuffix("LABELS"))
			Expect(header(k.run("get", "deploy", "web", "--show-kind", "-L", "app"))).To(HaveSuffix("APP"))
		})

		It("prints YAML and JSON that can be sent back", func() {
			yaml := k.run("get", "deploy", "web", "-o", "yaml")
			Expect(yaml).To(And(HavePrefix("apiVersion: apps/v1\n"), ContainSubstring("\nkind: Deployment\n")))
			Expect(k.pipe(yaml, "replace", "-f", "-")).To(Equal("deployment.apps/web replaced\n"))
			obj := k.get("deploy", "web")
			Expect(obj["kind"]).To(Equal("Deployment"))
			Expect(obj["metadata"]).To(And(HaveKey("uid"), HaveKey("resourceVersion"), HaveKey("creationTimestamp")))
		})

		DescribeTable("prints what a template asks for", func(output, want string) {
			Expect(k.run("get", "deploy", "web", "-o", output)).To(Equal(want))
		},
			Entry(nil, "name", "deployment.apps/web\n"),
			Entry(nil, "jsonpath={.spec.template.spec.containers[?(@.name==\"web\")].image}", "nginx:1.25"),
			Entry(nil, "custom-columns=N:.metadata.name,R:.spec.replicas", "N     R\nweb   2\n"),
			Entry(nil, "go-template={{.spec.replicas}}", "2"),
		)
	})

	DescribeTable("has the columns of Kubernetes 1.28", only("1.28"), func(resource, narrow, wide string) {
		// An empty list has columns too, but kubectl prints them only with rows:
		// ask the server as kubectl does.
		table := parse(rawTable(resource))
		var all, first []string
		for _, c := range table["columnDefinitions"].([]any) {
			name := strings.ToUpper(c.(object)["name"].(string))
			all = append(all, name)
			if c.(object)["priority"].(float64) == 0 {
				first = append(first, name)
			}
		}
		Expect(strings.Join(first, ", ")).To(Equal(narrow))
		Expect(strings.Join(all[len(first):], ", ")).To(Equal(wide))
	},
		Entry(nil, "api/v1/pods", "NAME, READY, STATUS, RESTARTS, AGE", "IP, NODE, NOMINATED NODE, READINESS GATES"),
		Entry(nil, "api/v1/services", "NAME, TYPE, CLUSTER-IP, EXTERNAL-IP, PORT(S), AGE", "SELECTOR"),
		Entry(nil, "api/v1/configmaps", "NAME, DATA, AGE", ""),
		Entry(nil, "api/v1/secrets", "NAME, TYPE, DATA, AGE", ""),
		Entry(nil, "api/v1/nodes", "NAME, STATUS, ROLES, AGE, VERSION", "INTERNAL-IP, EXTERNAL-IP, OS-IMAGE, KERNEL-VERSION, CONTAINER-RUNTIME"),
		Entry(nil, "api/v1/namespaces", "NAME, STATUS, AGE", ""),
		Entry(nil, "api/v1/persistentvolumeclaims", "NAME, STATUS, VOLUME, CAPACITY, ACCESS MODES, STORAGECLASS, AGE", "VOLUMEMODE"),
		Entry(nil, "apis/apps/v1/replicasets", "NAME, DESIRED, CURRENT, READY, AGE", "CONTAINERS, IMAGES, SELECTOR"),
		Entry(nil, "apis/apps/v1/statefulsets", "NAME, READY, AGE", "CONTAINERS, IMAGES"),
		Entry(nil, "apis/apps/v1/daemonsets", "NAME, DESIRED, CURRENT, READY, UP-TO-DATE, AVAILABLE, NODE SELECTOR, AGE", "CONTAINERS, IMAGES, SELECTOR"),
		Entry(nil, "apis/batch/v1/jobs", "NAME, COMPLETIONS, DURATION, AGE", "CONTAINERS, IMAGES, SELECTOR"),
		Entry(nil, "apis/batch/v1/cronjobs", "NAME, SCHEDULE, SUSPEND, ACTIVE, LAST SCHEDULE, AGE", "CONTAINERS, IMAGES, SELECTOR"),
		Entry(nil, "api/v1/serviceaccounts", "NAME, SECRETS, AGE", ""),
		Entry(nil, "api/v1/resourcequotas", "NAME, AGE, REQUEST, LIMIT", ""),
		Entry(nil, "apis/networking.k8s.io/v1/ingresses", "NAME, CLASS, HOSTS, ADDRESS, PORTS, AGE", ""),
		Entry(nil, "apis/policy/v1/poddisruptionbudgets", "NAME, MIN AVAILABLE, MAX UNAVAILABLE, ALLOWED DISRUPTIONS, AGE", ""),
		Entry(nil, "apis/coordination.k8s.io/v1/leases", "NAME, HOLDER, AGE", ""),
	)

	Context("of many objects", func() {
		BeforeEach(func() {
			var manifest strings.Builder
			for i := range 5 {
				fmt.Fprintf(&manifest, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: pod-%d, labels: {tier: %s, rank: %q}}\nspec: {nodeName: %s, containers: [{name: a, image: busybox}]}\n",
					i, []string{"front", "back"}[i%2], fmt.Sprint(5-i), []string{"node-a", "node-b"}[i%2])
			}
			k.pipe(manifest.String(), "create", "-f", "-")
		})

		DescribeTable("selects", func(args string, want ...string) {
			out, _ := k.both("", append([]string{"get", "pods", "-o", "name"}, words(args)...)...)
			Expect(strings.Fields(strings.ReplaceAll(out, "pod/", ""))).To(Equal(want))
		},
			Entry("by label", "-l tier=back", "pod-1", "pod-3"),
			Entry("by an absent label", "-l tier!=back,rank", "pod-0", "pod-2", "pod-4"),
			Entry("by a set", "-l rank,rank_in_(1,2)", "pod-3", "pod-4"),
			Entry("by node", "--field-selector=spec.nodeName=node-b", "pod-1", "pod-3"),
			Entry("by name", "--field-selector=metadata.name=pod-2", "pod-2"),
			Entry("by phase and name", "--field-selector=status.phase=Pending,metadata.name!=pod-0", "pod-1", "pod-2", "pod-3", "pod-4"),
			Entry("in chunks", "--chunk-size=2", "pod-0", "pod-1", "pod-2", "pod-3", "pod-4"),
			Entry("sorted", "--sort-by=.metadata.labels.rank", "pod-4", "pod-3", "pod-2", "pod-1", "pod-0"),
		)

		It("rejects unsupported selectors", func() {
			Expect(k.fails("", "get", "pods", "--field-selector=spec.colour=red")).To(ContainSubstring("field label not supported: spec.colour"))
			Expect(k.fails("", "get", "pods", "-l", "a in (")).To(ContainSubstring("unable to parse requirement"))
		})

		It("lists all namespaces", func() {
			out := k.run("get", "pods", "-A")
			Expect(header(out)).To(HavePrefix("NAMESPACE NAME READY"))
			Expect(out).To(ContainSubstring(k.Namespace))
			Expect(k.run("get", "pods", "-A", "--field-selector=metadata.namespace="+k.Namespace, "-o", "name")).To(Equal("pod/pod-0\npod/pod-1\npod/pod-2\npod/pod-3\npod/pod-4\n"))
		})

		It("lists by category and by several kinds", func() {
			k.run("create", "service", "clusterip", "web", "--tcp=80")
			Expect(firstColumn(k.run("get", "all", "--no-headers"))).To(ContainElements("pod/pod-0", "service/web"))
			Expect(k.run("get", "pods,services", "-o", "name")).To(And(ContainSubstring("pod/pod-4"), HaveSuffix("service/web\n")))
			Expect(k.run("get", "pod/pod-0", "service/web", "-o", "name")).To(Equal("pod/pod-0\nservice/web\n"))
		})
	})

	It("takes the arguments of an alias from a kuberc file", func(ctx SpecContext) {
		s := newSandbox(ctx)
		s.run("create", "configmap", "chosen")
		file := filepath.Join(GinkgoT().TempDir(), "kuberc")
		Expect(os.WriteFile(file, []byte("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\naliases:\n- {name: getcm, command: get, prependArgs: [configmap], options: [{name: output, default: name}]}\n"), 0o600)).To(Succeed())
		Expect(s.run("getcm", "--kuberc="+file, "chosen")).To(Equal("configmap/chosen\n"))
	})

	It("reports objects that do not exist", func() {
		Expect(k.fails("", "get", "cm", "nothing")).To(Equal("Error from server (NotFound): configmaps \"nothing\" not found\n"))
		_, stderr := k.both("", "get", "cm", "nothing", "--ignore-not-found")
		Expect(stderr).To(BeEmpty())
		_, stderr = k.both("", "get", "secrets")
		Expect(stderr).To(Equal(fmt.Sprintf("No resources found in %s namespace.\n", k.Namespace)))
		Expect(k.fails("", "get", "unicorns")).To(ContainSubstring(`the server doesn't have a resource type "unicorns"`))
	})

	It("reads paths", func() {
		// A busy server may be unhealthy for a moment.
		Eventually(k.out("", "get", "--raw", "/livez")).Should(Equal("ok"))
		Eventually(k.out("", "get", "--raw", "/readyz?verbose")).Should(And(ContainSubstring("[+]ping ok"), ContainSubstring("[+]etcd ok"), ContainSubstring("check passed")))
		Expect(k.run("get", "--raw", "/api/v1/namespaces/default")).To(ContainSubstring(`"kind":"Namespace"`))
	})

	It("reads subresources", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		Expect(k.run("get", "deploy", "web", "--subresource=scale")).To(MatchRegexp(`NAME +DESIRED +AVAILABLE +AGE\nweb +2 +0 +[0-9ms]+\n`))
		Expect(k.run("get", "deploy", "web", "--subresource=status", "-o", "name")).To(Equal("deployment.apps/web\n"))
	})
})

// rawTable asks for a list as a table.
func rawTable(path string) string {
	GinkgoHelper()
	answer := send(request{method: "GET", path: "/" + path, accept: "application/json;as=Table;g=meta.k8s.io;v=v1"})
	Expect(answer.status).To(Equal(200), answer.body)
	return answer.body
}
