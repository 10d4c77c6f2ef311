package e2e

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
)

// workload is a kind with a pod template, as small as it may be.
func workload(kind, name, more string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {containers: [{name: a, image: nginx:1.25}]}
%s`, kind, name, more)
}

var _ = Describe("kubectl scale", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	DescribeTable("changes the number of replicas", func(kind, printed, more string) {
		k.pipe(workload(kind, "web", more), "apply", "-f", "-")
		Expect(k.field("{.spec.replicas}", printed+"/web")).To(Equal("1"))
		Expect(k.run("scale", printed+"/web", "--replicas=3")).To(Equal(printed + "/web scaled\n"))
		Expect(k.fails("", "scale", printed+"/web", "--current-replicas=1", "--replicas=5")).To(ContainSubstring("Expected replicas to be 1, was 3"))
		Expect(k.field("{.spec.replicas} {.status.selector}", "--subresource=scale", printed+"/web")).To(Equal("3 app=web"))
		k.run("scale", printed+"/web", "--current-replicas=3", "--replicas=0")
		Expect(k.field("{.spec.replicas}", printed+"/web")).To(Equal("0"))
	},
		Entry(nil, "Deployment", "deployment.apps", ""),
		Entry(nil, "ReplicaSet", "replicaset.apps", ""),
		Entry(nil, "StatefulSet", "statefulset.apps", "  serviceName: web\n"),
	)

	It("rejects a negative number", func() {
		k.run("create", "deployment", "web", "--image=nginx")
		Expect(k.fails("", "patch", "deploy", "web", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":-1}}`)).
			To(And(ContainSubstring("is invalid"), ContainSubstring("must be greater than or equal to 0")))
	})
})

var _ = Describe("kubectl rollout", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	// No controller runs: the specs play its part by writing what it would write.
	revision := func(owner string, n int, image, cause string) string {
		return fmt.Sprintf(`apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-%[2]d
  labels: {app: web, pod-template-hash: h%[2]d}
  annotations: {deployment.kubernetes.io/revision: "%[2]d", kubernetes.io/change-cause: %[4]s}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %[1]s, controller: true}]
spec:
  selector: {matchLabels: {app: web, pod-template-hash: h%[2]d}}
  template:
    metadata: {labels: {app: web, pod-template-hash: h%[2]d}}
    spec: {containers: [{name: web, image: %[3]s}]}
---
`, owner, n, image, cause)
	}

	It("shows a deployment's history, and goes back in it", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		uid := k.field("{.metadata.uid}", "deploy/web")
		k.pipe(revision(uid, 1, "nginx:1.24", "first")+revision(uid, 2, "nginx:1.25", "second"), "create", "-f", "-")
		k.run("annotate", "deploy", "web", "deployment.kubernetes.io/revision=2")

		Expect(k.run("rollout", "history", "deploy/web")).To(MatchRegexp(`REVISION +CHANGE-CAUSE\n1 +first\n2 +second\n`))
		Expect(k.run("rollout", "history", "deploy/web", "--revision=1")).To(And(ContainSubstring("revision #1"), ContainSubstring("nginx:1.24")))
		Expect(k.run("rollout", "undo", "deploy/web", "--to-revision=1")).To(Equal("deployment.apps/web rolled back\n"))
		Expect(k.field("{.spec.template.spec.containers[0].image}", "deploy/web")).To(Equal("nginx:1.24"))
	})

	It("follows a deployment's status until it is done", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		Expect(k.run("rollout", "status", "deploy/web", "--watch=false")).To(ContainSubstring("Waiting for deployment spec update to be observed"))
		status := k.start("rollout", "status", "deploy/web", "--timeout=3m")
		k.run("patch", "deploy", "web", "--subresource=status", "-p", `{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":1}}`)
		Eventually(status).Should(gbytes.Say("1 out of 2 new replicas have been updated"))
		k.run("patch", "deploy", "web", "--subresource=status", "-p", `{"status":{"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}`)
		Eventually(status).Should(gbytes.Say(`deployment "web" successfully rolled out`))
		Eventually(status).Should(gexec.Exit(0))
	})

	It("restarts, pauses and resumes", func() {
		k.pipe(webDeployment, "apply", "-f", "-")
		k.run("rollout", "restart", "deploy/web")
		Expect(k.field("{.spec.template.metadata.annotations}", "deploy/web")).To(ContainSubstring("kubectl.kubernetes.io/restartedAt"))
		k.run("rollout", "pause", "deploy/web")
		Expect(k.field("{.spec.paused}", "deploy/web")).To(Equal("true"))
		Expect(k.fails("", "rollout", "pause", "deploy/web")).To(ContainSubstring("is already paused"))
		k.run("rollout", "resume", "deploy/web")
		Expect(k.field("{.spec.paused}", "deploy/web")).To(BeEmpty())
	})

	It("reads a daemon set's history from its controller revisions", func() {
		k.pipe(workload("DaemonSet", "agent", ""), "apply", "-f", "-")
		k.pipe(fmt.Sprintf(`apiVersion: apps/v1
kind: ControllerRevision
metadata:
  name: agent-1
  labels: {app: agent}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: %s, controller: true}]
revision: 1
data: {spec: {template: {spec: {containers: [{name: a, image: nginx:1.24}]}}}}
`, k.field("{.metadata.uid}", "ds/agent")), "create", "-f", "-")
		Expect(k.run("rollout", "history", "ds/agent")).To(ContainSubstring("1         <none>"))
		k.run("patch", "ds", "agent", "--subresource=status", "-p", `{"status":{"observedGeneration":1,"desiredNumberScheduled":1,"updatedNumberScheduled":1,"numberAvailable":1,"currentNumberScheduled":1,"numberMisscheduled":0,"numberReady":1}}`)
		Expect(k.run("rollout", "status", "ds/agent")).To(ContainSubstring("successfully rolled out"))
	})
})
