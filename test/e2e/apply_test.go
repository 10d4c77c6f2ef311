package e2e

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// webDeployment is what people write: nothing that has a default.
const webDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: web
        image: nginx:1.25
        ports:
        - containerPort: 80
`

// colours is a ConfigMap with some data.
func colours(data string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colours}\ndata: {%s}\n", data)
}

var _ = Describe("kubectl apply", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("creates and changes objects, and leaves unchanged ones as they are", func() {
		Expect(k.pipe(webDeployment, "apply", "-f", "-")).To(Equal("deployment.apps/web created\n"))
		Expect(k.pipe(webDeployment, "apply", "-f", "-")).To(Equal("deployment.apps/web unchanged\n"))
		before := k.field("{.metadata.generation} {.spec.replicas}", "deploy/web")
		Expect(before).To(Equal("1 2"))

		changed := strings.Replace(webDeployment, "replicas: 2", "replicas: 5", 1)
		Expect(k.pipe(changed, "apply", "-f", "-")).To(Equal("deployment.apps/web configured\n"))
		Expect(k.field("{.metadata.generation} {.spec.replicas}", "deploy/web")).To(Equal("2 5"))
	})

	It("removes what the manifest no longer has", func() {
		k.pipe(colours("sky: blue, grass: green"), "apply", "-f", "-")
		k.run("patch", "cm", "colours", "-p", `{"data":{"snow":"white"}}`)
		k.pipe(colours("sky: grey"), "apply", "-f", "-")
		Expect(k.get("cm", "colours")["data"]).To(Equal(object{"sky": "grey", "snow": "white"}))
	})

	It("fills in the defaults", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		Expect(k.field("{.spec.strategy.type} {.spec.strategy.rollingUpdate.maxSurge} {.spec.revisionHistoryLimit} {.spec.progressDeadlineSeconds}", "deploy", "web")).
			To(Equal("RollingUpdate 25% 10 600"))
		Expect(k.field("{.spec.template.spec.restartPolicy} {.spec.template.spec.dnsPolicy} {.spec.template.spec.terminationGracePeriodSeconds} {.spec.template.spec.containers[0].ports[0].protocol}", "deploy", "web")).
			To(Equal("Always ClusterFirst 30 TCP"))
	})

	It("merges lists by their keys", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		k.run("patch", "deploy", "web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"busybox"}]}}}}`)
		k.pipe(strings.Replace(webDeployment, "nginx:1.25", "nginx:1.26", 1), "apply", "-f", "-")
		Expect(k.field("{.spec.template.spec.containers[*].image}", "deploy", "web")).To(Or(Equal("nginx:1.26 busybox"), Equal("busybox nginx:1.26")))
	})

	It("changes nothing with --dry-run=server, but validates", func() {
		Expect(k.pipe(colours("sky: blue"), "apply", "--dry-run=server", "-f", "-")).To(Equal("configmap/colours created (server dry run)\n"))
		Expect(k.fails("", "get", "cm", "colours")).To(ContainSubstring("NotFound"))
		Expect(k.fails(strings.Replace(webDeployment, "replicas: 2", "replicas: -2", 1), "apply", "--dry-run=server", "-f", "-")).
			To(ContainSubstring("spec.replicas: Invalid value: -2: must be greater than or equal to 0"))

		k.pipe(colours("sky: blue"), "apply", "-f", "-")
		k.pipe(colours("sky: red"), "apply", "--dry-run=server", "-f", "-")
		Expect(k.field("{.data.sky}", "cm", "colours")).To(Equal("blue"))
	})

	It("rejects unknown and duplicate fields, unless validation is off", func() {
		manifest := colours("sky: blue") + "colour: red\n"
		Expect(k.fails(manifest, "apply", "-f", "-")).To(ContainSubstring(`unknown field "colour"`))
		_, warnings := k.both(manifest, "apply", "--validate=warn", "-f", "-")
		Expect(warnings).To(ContainSubstring(`unknown field "colour"`))
		_, silence := k.both(manifest, "apply", "--validate=ignore", "-f", "-")
		Expect(silence).NotTo(ContainSubstring("unknown field"))
	})

	It("prunes what a set no longer has", func() {
		set := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, labels: {set: a}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, labels: {set: a}}\n"
		k.pipe(set, "apply", "-f", "-")
		out := k.pipe(strings.Split(set, "---\n")[0], "apply", "--prune", "-l", "set=a", "--prune-allowlist=core/v1/ConfigMap", "-f", "-")
		Expect(out).To(And(ContainSubstring("configmap/one unchanged"), ContainSubstring("configmap/two pruned")))
		Expect(k.run("get", "cm", "-l", "set=a", "-o", "name")).To(Equal("configmap/one\n"))
	})

	It("shows and changes its annotation", func() {
		k.pipe(colours("sky: blue"), "create", "-f", "-")
		Expect(k.pipe(colours("sky: blue"), "apply", "set-last-applied", "--create-annotation", "-f", "-")).To(ContainSubstring("configmap/colours configured"))
		Expect(k.run("apply", "view-last-applied", "cm/colours")).To(ContainSubstring("sky: blue"))
	})

	It("continues after an object that is rejected", func() {
		manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name}\n---\n" + colours("sky: blue")
		Expect(k.fails(manifest, "apply", "-f", "-")).To(And(
			ContainSubstring(`"Bad_Name" is invalid`), ContainSubstring("metadata.name: Invalid value"), ContainSubstring("RFC 1123 subdomain")))
		k.get("cm", "colours")
	})
})

var _ = Describe("kubectl apply --server-side", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	apply := func(manager string, args ...string) []string {
		return append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, args...)
	}

	It("creates objects, and records the owner of each field", func() {
		Expect(k.pipe(webDeployment, apply("ann")...)).To(Equal("deployment.apps/web serverside-applied\n"))
		Expect(k.pipe(webDeployment, apply("ann")...)).To(Equal("deployment.apps/web serverside-applied\n"))
		managed := k.run("get", "deploy", "web", "-o", "json", "--show-managed-fields")
		Expect(managed).To(And(ContainSubstring(`"manager": "ann"`), ContainSubstring(`"operation": "Apply"`), ContainSubstring(`"fieldsType": "FieldsV1"`)))
		Expect(managed).To(ContainSubstring(`"k:{\"name\":\"web\"}"`), "containers are a map by name")
		Expect(managed).To(ContainSubstring(`"k:{\"containerPort\":80,\"protocol\":\"TCP\"}"`), "ports are a map by port and protocol")
		Expect(managed).NotTo(ContainSubstring("f:terminationGracePeriodSeconds"), "no manager owns defaults")
	})

	It("reports a conflict, and takes the field with --force-conflicts", func() {
		k.pipe(colours("sky: blue"), apply("ann")...)
		conflict := k.fails(colours("sky: grey"), apply("bob")...)
		Expect(conflict).To(And(ContainSubstring(`conflict with "ann"`), ContainSubstring(".data.sky")))
		Expect(k.field("{.data.sky}", "cm", "colours")).To(Equal("blue"))

		k.pipe(colours("sky: grey"), apply("bob", "--force-conflicts")...)
		Expect(k.field("{.data.sky}", "cm", "colours")).To(Equal("grey"))
		Expect(managers(k, "cm", "colours")).To(Equal(map[string][]string{"bob": {"sky"}}))
	})

	It("shares a field that two managers set to the same value, until one leaves it out", func() {
		k.pipe(colours("sky: blue"), apply("ann")...)
		k.pipe(colours("sky: blue, grass: green"), apply("bob")...)
		Expect(managers(k, "cm", "colours")).To(Equal(map[string][]string{"ann": {"sky"}, "bob": {"grass", "sky"}}))
		k.pipe(colours("grass: green"), apply("bob")...)
		Expect(managers(k, "cm", "colours")).To(Equal(map[string][]string{"ann": {"sky"}, "bob": {"grass"}}))
		Expect(k.get("cm", "colours")["data"]).To(Equal(object{"sky": "blue", "grass": "green"}))
	})

	It("deletes a field that its only owner leaves out", func() {
		k.pipe(colours("sky: blue, grass: green"), apply("ann")...)
		k.pipe(colours("sky: blue"), apply("ann")...)
		Expect(k.get("cm", "colours")["data"]).To(Equal(object{"sky": "blue"}))
	})

	It("lets two managers own entries of one list", func() {
		k.pipe(webDeployment, apply("ann")...)
		sidecar := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: sidecar, image: busybox}]}}}\n"
		k.pipe(sidecar, apply("bob")...)
		Expect(k.field("{.spec.template.spec.containers[*].name}", "deploy", "web")).To(Equal("web sidecar"))
		k.pipe(strings.Replace(webDeployment, "nginx:1.25", "nginx:1.26", 1), apply("ann")...)
		Expect(k.field("{.spec.template.spec.containers[*].image}", "deploy", "web")).To(Equal("nginx:1.26 busybox"))
	})

	It("tracks changes through scale and status as managers of their own", func() {
		k.pipe(webDeployment, apply("ann")...)
		k.run("scale", "deploy", "web", "--replicas=4")
		k.run("patch", "deploy", "web", "--subresource=status", "--type=merge", "--field-manager=controller", "-p", `{"status":{"replicas":4}}`)
		Expect(k.fails(webDeployment, apply("ann")...)).To(ContainSubstring(".spec.replicas"))
		managed := k.run("get", "deploy", "web", "-o", "jsonpath={range .metadata.managedFields[*]}{.manager}/{.subresource} {end}", "--show-managed-fields")
		Expect(strings.Fields(managed)).To(ContainElements("ann/", "controller/status", HaveSuffix("/scale")))
	})

	It("takes over from client-side apply", func() {
		k.pipe(colours("sky: blue"), "apply", "-f", "-")
		k.pipe(colours("sky: grey"), "apply", "--server-side", "-f", "-")
		Expect(k.field("{.data.sky}", "cm", "colours")).To(Equal("grey"))
	})

	It("changes nothing with --dry-run=server", func() {
		k.pipe(colours("sky: blue"), apply("ann", "--dry-run=server")...)
		Expect(k.fails("", "get", "cm", "colours")).To(ContainSubstring("NotFound"))
	})
})

// managers are the field managers of an object and the keys of data that each owns.
func managers(k *sandbox, args ...string) map[string][]string {
	GinkgoHelper()
	owned := map[string][]string{}
	obj := parse(k.run(append([]string{"get", "-o", "json", "--show-managed-fields"}, args...)...))
	for _, entry := range obj["metadata"].(object)["managedFields"].([]any) {
		fields := entry.(object)["fieldsV1"].(object)
		data, _ := fields["f:data"].(object)
		for key := range data {
			if key != "." {
				owned[entry.(object)["manager"].(string)] = append(owned[entry.(object)["manager"].(string)], strings.TrimPrefix(key, "f:"))
			}
		}
	}
	for _, keys := range owned {
		slices.Sort(keys)
	}
	return owned
}
