package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("kubectl wait", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe(webDeployment, "apply", "-f", "-")
	})

	It("returns when a condition is true", func() {
		wait := k.start("wait", "deploy/web", "--for=condition=Available", "--timeout=3m")
		Consistently(wait, "300ms").ShouldNot(gexec.Exit())
		k.run("patch", "deploy", "web", "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Available","status":"True","reason":"Enough"}]}}`)
		Eventually(wait).Should(gexec.Exit(0))
	})

	It("returns when a field has a value, or an object is created or deleted", func() {
		replicas := k.start("wait", "deploy/web", "--for=jsonpath={.spec.replicas}=4", "--timeout=3m")
		created := k.start("wait", "cm/late", "--for=create", "--timeout=3m")
		gone := k.start("wait", "deploy/web", "--for=delete", "--timeout=3m")
		k.run("scale", "deploy/web", "--replicas=4")
		Eventually(replicas).Should(gexec.Exit(0))
		k.run("create", "cm", "late")
		Eventually(created).Should(gexec.Exit(0))
		k.run("delete", "deploy", "web")
		Eventually(gone).Should(gexec.Exit(0))
	})

	It("ends at its timeout", func() {
		Expect(k.fails("", "wait", "deploy/web", "--for=condition=Available", "--timeout=1s")).To(ContainSubstring("timed out waiting for the condition on deployments/web"))
	})
})

var _ = Describe("kubectl diff", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe(webDeployment, "apply", "-f", "-")
	})

	It("is empty for applied objects", func() {
		Expect(k.pipe(webDeployment, "diff", "-f", "-")).To(BeEmpty())
		k.pipe(webDeployment, "apply", "--server-side", "-f", "-")
		Expect(k.pipe(webDeployment, "diff", "--server-side", "-f", "-")).To(BeEmpty())
	})

	It("shows what apply would change, and exits with 1", func() {
		stdout, stderr, err := k.try(strings.Replace(webDeployment, "nginx:1.25", "nginx:1.26", 1), "diff", "-f", "-")
		Expect(err).To(MatchError("exit status 1"), stderr)
		Expect(stdout).To(And(ContainSubstring("-      - image: nginx:1.25"), ContainSubstring("+      - image: nginx:1.26")))
		Expect(k.field("{.spec.template.spec.containers[0].image}", "deploy/web")).To(Equal("nginx:1.25"))
	})

	It("shows new objects", func() {
		stdout, _, err := k.try(colours("sky: blue"), "diff", "-f", "-")
		Expect(err).To(MatchError("exit status 1"))
		Expect(stdout).To(ContainSubstring("+  sky: blue"))
	})
})

var _ = Describe("kubectl events", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	event := func(name, pod, kind, reason, minute string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Event
metadata: {name: %s}
involvedObject: {apiVersion: v1, kind: Pod, name: %s, namespace: NAMESPACE}
type: %s
reason: %s
message: it is so
lastTimestamp: "2026-01-01T00:%s:00Z"
count: 3
source: {component: tester}
---
`, name, pod, kind, reason, minute)
	}

	It("lists, filters and sorts", func() {
		manifest := event("one", "a", "Normal", "Pulled", "02") + event("two", "b", "Warning", "BackOff", "01")
		k.pipe(strings.ReplaceAll(manifest, "NAMESPACE", k.Namespace), "create", "-f", "-")
		Expect(k.run("events")).To(And(ContainSubstring("Pulled"), ContainSubstring("BackOff")))
		Expect(k.run("events", "--types=Warning")).NotTo(ContainSubstring("Pulled"))
		Expect(k.run("events", "--for=pod/a")).NotTo(ContainSubstring("BackOff"))
		table := k.run("get", "events", "--sort-by=.lastTimestamp")
		Expect(header(table)).To(Equal("LAST SEEN TYPE REASON OBJECT MESSAGE"))
		Expect(lines(table)[1]).To(MatchRegexp(`Warning +BackOff +pod/b +it is so`))
		Expect(k.run("get", "events", "--field-selector=involvedObject.name=a,reason=Pulled", "-o", "name")).To(Equal("event/one\n"))
		Expect(k.run("get", "events.events.k8s.io", "one", "-o", "jsonpath={.regarding.name} {.note} {.deprecatedCount}")).To(Equal("a it is so 3"))
	})
})

var _ = Describe("kubectl describe", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	DescribeTable("shows an object with its events", func(manifest, name string, want ...string) {
		k.pipe(manifest, "apply", "-f", "-")
		text := k.run("describe", name)
		for _, w := range want {
			Expect(text).To(MatchRegexp(w))
		}
	},
		Entry("a deployment", webDeployment, "deployment/web", `Replicas: +2 desired \| 0 updated`, `StrategyType: +RollingUpdate`, `Image: +nginx:1.25`),
		Entry("a config map", colours("sky: blue"), "configmap/colours", `sky:\n----\nblue`),
		Entry("a service", "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}", "service/web", `Selector: +app=web`, `IP: +10\.`, `Session Affinity: +None`),
		Entry("a pod", "{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {containers: [{name: a, image: busybox}]}}", "pod/one", `Status: +Pending`, `QoS Class: +BestEffort`),
		Entry("a secret", "{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {user: ann}}", "secret/login", `user: +3 bytes`),
	)

	It("describes namespaces and all of a kind", func() {
		Expect(k.run("describe", "namespace", k.Namespace)).To(And(MatchRegexp(`Status: +Active`), ContainSubstring("kubernetes.io/metadata.name="+k.Namespace)))
		k.pipe(webDeployment, "apply", "-f", "-")
		Expect(k.run("describe", "deployments")).To(ContainSubstring("Name:                   web"))
	})
})

var _ = Describe("kubectl kustomize", everyRelease, func() {
	It("applies a directory, its own generated names included", func(ctx SpecContext) {
		k := newSandbox(ctx)
		dir := GinkgoT().TempDir()
		for name, content := range map[string]string{
			"kustomization.yaml": "resources: [web.yaml]\nnamePrefix: my-\nimages: [{name: nginx, newTag: '1.27'}]\nconfigMapGenerator: [{name: settings, literals: [mode=fast]}]\n",
			"web.yaml":           webDeployment,
		} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
		}
		Expect(k.run("apply", "-k", dir)).To(And(ContainSubstring("deployment.apps/my-web created"), MatchRegexp(`configmap/my-settings-\w+ created`)))
		Expect(k.run("apply", "-k", dir)).To(And(ContainSubstring("deployment.apps/my-web unchanged"), MatchRegexp(`configmap/my-settings-\w+ unchanged`)))
		Expect(k.field("{.spec.template.spec.containers[0].image}", "deploy/my-web")).To(Equal("nginx:1.27"))
		k.run("delete", "-k", dir)
	})
})
