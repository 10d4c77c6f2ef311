package aggregated

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// chart are the files of a chart: a definition, an object of it, a configuration that looks
// up another object, and a workload that asks for no pods, since the fleet has no nodes.
var chart = map[string]string{
	"Chart.yaml":  "{apiVersion: v2, name: shop, version: 0.1.0}\n",
	"values.yaml": "{greeting: hello}\n",
	"crds/shelves.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shelves.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: shelves, singular: shelf, kind: Shelf}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]
`,
	"templates/shelf.yaml": `
apiVersion: shop.example.com/v1
kind: Shelf
metadata: {name: {{ .Release.Name }}}
spec: {size: 3}
`,
	"templates/config.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data:
  greeting: {{ .Values.greeting }}
  release: {{ .Capabilities.KubeVersion.Version }}
  found: {{ dig "data" "key" "nothing" (lookup "v1" "ConfigMap" .Release.Namespace "present") | quote }}
`,
	"templates/deployment.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: example.com/shop}]}
`,
	"templates/NOTES.txt": "The shop {{ .Release.Name }} is open.\n",
}

var _ = Describe("Helm at the fleet's own address", func() {
	var program string
	BeforeEach(func() {
		if os.Getenv("HOST") != "kube-apiserver" {
			Skip("takes minutes to build: it runs with HOST=kube-apiserver")
		}
		var err error
		program, err = launch.Peer("helm")
		Expect(err).NotTo(HaveOccurred())
	})

	It("installs, upgrades, rolls back and removes a chart with a definition", func(ctx SpecContext) {
		must := func(args ...string) string {
			GinkgoHelper()
			out, err := runHelm(ctx, program, args...)
			Expect(err).NotTo(HaveOccurred(), out)
			return out
		}
		n := newNamespace()
		greeting := func() string {
			return kubectl(onHost, "get", "configmaps.core.svc.dev", "web", "-n", n, "-o", "jsonpath={.data.greeting}")
		}
		files := writeChart()
		kubectl(onFleet, "create", "configmap", "present", "-n", n, "--from-literal=key=value")

		Expect(must("install", "web", files, "-n", n, "--wait", "--timeout=2m")).To(ContainSubstring("The shop web is open."))
		Expect(greeting()).To(Equal("hello"))
		Expect(kubectl(onFleet, "get", "configmap", "web", "-n", n, "-o", "jsonpath={.data.found} {.data.release}")).To(HavePrefix("value v1."))
		Expect(kubectl(onFleet, "get", "shelves", "web", "-n", n, "-o", "jsonpath={.spec.size}")).To(Equal("3"))
		Expect(kubectl(onHost, "get", "secrets,deployments.apps", "-n", n, "-o", "name")).To(BeEmpty(), "of the host")

		must("upgrade", "web", files, "-n", n, "--set=greeting=welcome", "--wait", "--timeout=2m")
		Expect(greeting()).To(Equal("welcome"))
		must("rollback", "web", "1", "-n", n, "--wait", "--timeout=2m")
		Expect(greeting()).To(Equal("hello"))
		Expect(must("list", "-n", n)).To(MatchRegexp(`web\s+` + n + `\s+3\s.*deployed\s+shop-0.1.0`))
		Expect(strings.Count(must("history", "web", "-n", n), "shop-0.1.0")).To(Equal(3))

		must("uninstall", "web", "-n", n, "--wait", "--timeout=2m")
		Expect(kubectl(onFleet, "get", "configmaps,deployments,shelves", "-n", n, "-o", "name")).To(Equal("configmap/present\n"))
		Expect(must("list", "-n", n, "--all", "--short")).To(BeEmpty())
	})

	It("is told where namespaces are created", func(ctx SpecContext) {
		out, err := runHelm(ctx, program, "install", "web", writeChart(), "-n", "elsewhere", "--create-namespace")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("kubectl create namespace"))
	})
})

// writeChart returns a directory with the files of chart. Its definition, which Helm does
// not remove, ends with the spec.
func writeChart() string {
	GinkgoHelper()
	DeferCleanup(func() { kubectl(onFleet, "delete", "crd", "shelves.shop.example.com", "--ignore-not-found") })
	dir := GinkgoT().TempDir()
	for name, content := range chart {
		file := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
		Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	}
	return dir
}

// runHelm runs Helm at the fleet, with directories of its own.
func runHelm(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, append(args, "--kubeconfig="+onFleet.Kubeconfig)...)
	home := filepath.Join(dir, "home-helm")
	command.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := command.CombinedOutput()
	return string(out), err
}
