package e2e

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl edit", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.run("create", "cm", "colours", "--from-literal=sky=blue")
		k.pipe(webDeployment, "apply", "-f", "-")
	})

	It("saves what the editor changed", func() {
		Expect(k.with("EDITOR=sed -i s/blue/grey/").run("edit", "cm", "colours")).To(Equal("configmap/colours edited\n"))
		Expect(k.field("{.data.sky}", "cm/colours")).To(Equal("grey"))
	})

	It("saves nothing when the editor changed nothing", func() {
		_, stderr := k.with("EDITOR=true").both("", "edit", "cm", "colours")
		Expect(stderr).To(ContainSubstring("Edit cancelled, no changes made"))
	})

	It("edits subresources", func() {
		k.with("EDITOR=sed -i 's/status:.*/status: {replicas: 7}/'").run("edit", "deploy", "web", "--subresource=status")
		Expect(k.field("{.spec.replicas}/{.status.replicas}", "deploy/web")).To(Equal("2/7"))
	})

	It("shows the server's error and keeps the object", func() {
		// kubectl keeps what was refused in a file.
		stderr := k.with("EDITOR=sed -i s/replicas:.2/replicas:\\ -7/", "TMPDIR="+GinkgoT().TempDir()).fails("", "edit", "deploy", "web")
		Expect(stderr).To(And(ContainSubstring(`deployments.apps "web" is invalid`), ContainSubstring("Edit cancelled, no valid changes were saved")))
		Expect(k.field("{.spec.replicas}", "deploy/web")).To(Equal("2"))
	})
})

var _ = Describe("kubectl patch", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe(webDeployment, "apply", "-f", "-")
	})
	const containers = "{range .spec.template.spec.containers[*]}{.name}={.image} {end}"

	DescribeTable("merges in the manner of its type", func(kind, patch, path, want string) {
		Expect(k.run("patch", "deploy", "web", "--type="+kind, "-p", patch)).To(Equal("deployment.apps/web patched\n"))
		Expect(k.field(path, "deploy/web")).To(Equal(want))
	},
		Entry("strategic: by key", "strategic", `{"spec":{"template":{"spec":{"containers":[{"name":"log","image":"busybox"}]}}}}`, containers, "log=busybox web=nginx:1.25 "),
		Entry("strategic: delete an entry", "strategic", `{"spec":{"template":{"spec":{"containers":[{"name":"web","$patch":"delete"},{"name":"log","image":"busybox"}]}}}}`, containers, "log=busybox "),
		Entry("strategic: replace a list", "strategic", `{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"log","image":"busybox"}]}}}}`, containers, "log=busybox "),
		Entry("merge: lists are whole", "merge", `{"spec":{"template":{"spec":{"containers":[{"name":"log","image":"busybox"}]}}}}`, containers, "log=busybox "),
		Entry("merge: null deletes", "merge", `{"metadata":{"labels":{"app":null,"tier":"front"}}}`, "{.metadata.labels}", `{"tier":"front"}`),
		Entry("json: operations in order", "json", `[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":3},{"op":"add","path":"/metadata/labels/a~1b","value":"c"}]`, "{.spec.replicas} {.metadata.labels.a/b}", "3 c"),
	)

	It("does all or nothing", func() {
		Expect(k.fails("", "patch", "deploy", "web", "--type=json", "-p", `[{"op":"replace","path":"/spec/replicas","value":9},{"op":"test","path":"/spec/replicas","value":2}]`)).
			To(ContainSubstring(`operation 1 of the patch, test "/spec/replicas", failed`))
		Expect(k.fails("", "patch", "deploy", "web", "-p", `{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`)).
			To(And(ContainSubstring("is invalid"), Or(ContainSubstring("field is immutable"), ContainSubstring("`selector` does not match"))))
		Expect(k.field("{.spec.replicas}", "deploy/web")).To(Equal("2"))
	})

	It("changes spec and status separately", func() {
		k.run("patch", "deploy", "web", "--type=merge", "-p", `{"status":{"replicas":5},"spec":{"replicas":3}}`)
		Expect(k.field("{.spec.replicas}/{.status.replicas}", "deploy/web")).To(Equal("3/"))
		k.run("patch", "deploy", "web", "--type=merge", "--subresource=status", "-p", `{"status":{"replicas":5},"spec":{"replicas":9}}`)
		Expect(k.field("{.spec.replicas}/{.status.replicas}", "deploy/web")).To(Equal("3/5"))
		k.run("patch", "deploy", "web", "--type=merge", "--subresource=scale", "-p", `{"spec":{"replicas":8}}`)
		Expect(k.field("{.spec.replicas}/{.status.replicas}", "deploy/web")).To(Equal("8/5"))
	})

	It("increases the generation for changes of the spec only", func() {
		k.run("label", "deploy", "web", "a=b")
		k.run("patch", "deploy", "web", "--subresource=status", "-p", `{"status":{"replicas":5}}`)
		Expect(k.field("{.metadata.generation}", "deploy/web")).To(Equal("1"))
		k.run("patch", "deploy", "web", "-p", `{"spec":{"paused":true}}`)
		Expect(k.field("{.metadata.generation}", "deploy/web")).To(Equal("2"))
	})

	It("keeps the resource version when nothing changes", func() {
		before := k.field("{.metadata.resourceVersion}", "deploy/web")
		Expect(k.run("patch", "deploy", "web", "-p", `{"spec":{"replicas":2}}`)).To(Equal("deployment.apps/web patched (no change)\n"))
		Expect(k.field("{.metadata.resourceVersion}", "deploy/web")).To(Equal(before))
	})
})

var _ = Describe("kubectl replace", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe(colours("sky: blue, grass: green"), "create", "-f", "-")
	})

	It("replaces the whole object", func() {
		Expect(k.pipe(colours("sky: grey"), "replace", "-f", "-")).To(Equal("configmap/colours replaced\n"))
		Expect(k.get("cm", "colours")["data"]).To(Equal(object{"sky": "grey"}))
	})

	It("is rejected when another client has changed the object", func() {
		stale := k.run("get", "cm", "colours", "-o", "yaml")
		k.run("patch", "cm", "colours", "-p", `{"data":{"sky":"red"}}`)
		Expect(k.fails(strings.ReplaceAll(stale, "blue", "grey"), "replace", "-f", "-")).
			To(And(ContainSubstring("(Conflict)"), ContainSubstring("the object has been modified; please apply your changes to the latest version and try again")))
		Expect(k.field("{.data.sky}", "cm/colours")).To(Equal("red"))
	})

	It("deletes and creates with --force", func() {
		before := k.field("{.metadata.uid}", "cm/colours")
		k.pipe(colours("sky: grey"), "replace", "--force", "-f", "-")
		Expect(k.field("{.metadata.uid}", "cm/colours")).NotTo(Equal(before))
	})

	It("is rejected when the object does not exist", func() {
		Expect(k.fails("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing}\n", "replace", "-f", "-")).To(ContainSubstring("(NotFound)"))
	})

	It("is rejected when a field is immutable", since("1.19"), func() {
		k.run("patch", "cm", "colours", "-p", `{"immutable":true}`)
		Expect(k.fails(colours("sky: grey"), "replace", "-f", "-")).To(ContainSubstring("field is immutable when `immutable` is set"))
	})
})

var _ = Describe("kubectl label, annotate and set", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		k.pipe(webDeployment, "apply", "-f", "-")
	})

	DescribeTable("add, refuse, overwrite, remove", func(verb, path string) {
		k.run(verb, "deploy", "web", "colour=blue")
		Expect(k.fails("", verb, "deploy", "web", "colour=red")).To(And(ContainSubstring("already has a value (blue)"), ContainSubstring("--overwrite is false")))
		k.run(verb, "deploy", "web", "colour=red", "--overwrite")
		Expect(k.field(path, "deploy/web")).To(Equal("red"))
		k.run(verb, "deploy", "-l", "app=web", "colour-")
		k.run(verb, "deploy", "--all", "shape=round")
		Expect(k.field(path, "deploy/web")).To(BeEmpty())
		version := k.field("{.metadata.resourceVersion}", "deploy/web")
		k.run(verb, "deploy", "web", "colour=green", "--resource-version="+version)
		Expect(k.fails("", verb, "deploy", "web", "colour=black", "--overwrite", "--resource-version="+version)).To(ContainSubstring("(Conflict)"))
		Expect(k.run(verb, "deploy", "web", "--list")).To(ContainSubstring("colour=green"))
	},
		Entry(nil, "label", "{.metadata.labels.colour}"),
		Entry(nil, "annotate", "{.metadata.annotations.colour}"),
	)

	It("refuse names and values that are not allowed", func() {
		Expect(k.fails("", "label", "deploy", "web", "colour=light blue")).To(ContainSubstring("a valid label must be"))
		Expect(k.fails("", "annotate", "deploy", "web", "not/a/name=x")).To(ContainSubstring("metadata.annotations: Invalid value"))
	})

	It("set images, environment and resources", func() {
		Expect(k.run("set", "image", "deploy/web", "web=nginx:1.27")).To(Equal("deployment.apps/web image updated\n"))
		Expect(k.run("set", "env", "deploy/web", "MODE=fast")).To(Equal("deployment.apps/web env updated\n"))
		Expect(k.run("set", "resources", "deploy/web", "--limits=cpu=500m,memory=64Mi")).To(Equal("deployment.apps/web resource requirements updated\n"))
		Expect(k.run("set", "serviceaccount", "deploy/web", "robot")).To(Equal("deployment.apps/web serviceaccount updated\n"))
		Expect(k.field("{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value} {.spec.template.spec.containers[0].resources.limits.cpu} {.spec.template.spec.serviceAccountName}", "deploy/web")).
			To(Equal("nginx:1.27 fast 500m robot"))
		Expect(k.fails("", "set", "image", "deploy/web", "absent=nginx")).To(ContainSubstring(`unable to find container named "absent"`))
	})
})
