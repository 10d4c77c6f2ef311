package e2e

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

var _ = Describe("kubectl delete", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("deletes by name, by label, by file and all", func() {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			k.pipe(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {vowel: %q}}\n", name, fmt.Sprint(name == "a" || name == "e")), "create", "-f", "-")
		}
		Expect(k.run("delete", "cm", "b")).To(Equal(fmt.Sprintf("configmap \"b\" deleted from %s namespace\n", k.Namespace)))
		Expect(k.run("delete", "cm", "-l", "vowel=true", "-o", "name")).To(Equal("configmap/a\nconfigmap/e\n"))
		k.pipe("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "delete", "-f", "-")
		Expect(k.run("get", "cm", "-o", "name")).To(Equal("configmap/d\n"))
		Expect(k.run("delete", "cm", "--all", "--dry-run=server")).To(ContainSubstring("server dry run"))
		k.run("delete", "cm", "--all")
		Expect(k.run("get", "cm", "-o", "name")).To(BeEmpty())
		Expect(k.fails("", "delete", "cm", "d")).To(ContainSubstring("(NotFound)"))
		k.run("delete", "cm", "d", "--ignore-not-found")
	})

	It("keeps an object until its last finalizer is removed", func() {
		k.pipe("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/b, example.com/a]}\n", "create", "-f", "-")
		deletion := k.start("delete", "cm", "held")
		Eventually(func() string { return k.field("{.metadata.deletionTimestamp}", "cm/held") }).ShouldNot(BeEmpty())
		Consistently(deletion, "300ms").ShouldNot(gexec.Exit())

		Expect(k.fails("", "patch", "cm", "held", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/c"}]`)).
			To(ContainSubstring("no new finalizers can be added if the object is being deleted"))
		k.run("patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/a"]}}`)
		k.run("get", "cm", "held")
		k.run("patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		Eventually(deletion).Should(gexec.Exit(0))
		Expect(k.fails("", "get", "cm", "held")).To(ContainSubstring("(NotFound)"))
	})

	DescribeTable("passes the propagation policy for the dependents", func(cascade, finalizer string) {
		k.run("create", "deployment", "web", "--image=nginx")
		k.run("delete", "deploy", "web", "--cascade="+cascade, "--wait=false")
		Expect(k.field("{.metadata.finalizers[*]} {.metadata.deletionGracePeriodSeconds}", "deploy/web")).To(Equal(finalizer + " 0"))
		k.run("patch", "deploy", "web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		Expect(k.run("get", "deploy", "--ignore-not-found", "web")).To(BeEmpty())
	},
		Entry(nil, "foreground", "foregroundDeletion"),
		Entry(nil, "orphan", "orphan"),
	)

	It("deletes at once in the background", func() {
		k.run("create", "deployment", "web", "--image=nginx")
		k.run("delete", "deploy", "web", "--cascade=background")
		Expect(k.run("get", "deploy", "--ignore-not-found", "web")).To(BeEmpty())
	})

	It("gives a pod on a node its grace period", func() {
		// The periods are so long that the shorter one, which counts from the first request, is not over.
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {nodeName: %s, terminationGracePeriodSeconds: 7200, containers: [{name: a, image: busybox}]}\n"
		k.pipe(fmt.Sprintf(pod, "graceful", "node-a"), "create", "-f", "-")
		k.run("delete", "pod", "graceful", "--wait=false")
		Expect(k.field("{.metadata.deletionGracePeriodSeconds}", "pod/graceful")).To(Equal("7200"))
		Expect(k.run("get", "pod", "graceful")).To(ContainSubstring("Terminating"))
		k.run("delete", "pod", "graceful", "--grace-period=3600", "--wait=false")
		Expect(k.field("{.metadata.deletionGracePeriodSeconds}", "pod/graceful")).To(Equal("3600"), "it can be shortened")
		k.run("delete", "pod", "graceful", "--grace-period=0", "--force")
		Expect(k.run("get", "pod", "--ignore-not-found", "graceful")).To(BeEmpty())

		k.pipe(fmt.Sprintf(pod, "unscheduled", `""`), "create", "-f", "-")
		k.run("delete", "pod", "unscheduled")
	})

	It("evicts only what a budget allows", since("1.22"), func() {
		k.pipe("apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec: {containers: [{name: a, image: busybox}]}\n", "create", "-f", "-")
		k.run("patch", "pod", "a", "--subresource=status", "-p", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		k.run("create", "pdb", "a", "--selector=app=a", "--min-available=1")
		k.run("patch", "pdb", "a", "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}}`)
		eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a","namespace":%q}}`, k.Namespace)
		path := fmt.Sprintf("/api/v1/namespaces/%s/pods/a/eviction", k.Namespace)
		Expect(k.fails(eviction, "create", "--raw", path, "-f", "-")).To(ContainSubstring("Cannot evict pod as it would violate the pod's disruption budget"))
		k.run("patch", "pdb", "a", "--subresource=status", "--type=merge", "-p", `{"status":{"disruptionsAllowed":1}}`)
		k.pipe(strings.Replace(eviction, "policy/v1", "policy/v1beta1", 1), "create", "--raw", path+"?dryRun=All", "-f", "-")
		k.pipe(eviction, "create", "--raw", path, "-f", "-")
		Expect(k.run("get", "pod", "--ignore-not-found", "a")).To(BeEmpty())
		Expect(k.field("{.status.disruptionsAllowed}", "pdb/a")).To(Equal("0"))
	})

	It("waits for the deletion unless --wait=false", func() {
		k.pipe("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/a]}\n", "create", "-f", "-")
		Expect(k.fails("", "delete", "cm", "held", "--timeout=1s")).To(ContainSubstring("timed out waiting for the condition"))
		k.run("delete", "cm", "held", "--wait=false")
		watch := k.start("wait", "cm/held", "--for=delete", "--timeout=3m")
		k.run("patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":[]}}`)
		Eventually(watch).Should(gexec.Exit(0))
	})

	It("deletes a terminating namespace when finalize removes its last finalizer", func() {
		name := k.Namespace + "-extra"
		k.run("create", "namespace", name)
		k.run("delete", "namespace", name, "--wait=false")
		Expect(k.field("{.status.phase} {.spec.finalizers[*]}", "ns/"+name)).To(Equal("Terminating kubernetes"))
		watch := k.start("get", "ns", name, "-w", "--output-watch-events")
		Eventually(watch).Should(gbytes.Say("ADDED +" + name))
		k.pipe(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q},"spec":{"finalizers":[]}}`, name), "replace", "--raw", "/api/v1/namespaces/"+name+"/finalize", "-f", "-")
		Eventually(watch).Should(gbytes.Say("DELETED +" + name))
	})
})
