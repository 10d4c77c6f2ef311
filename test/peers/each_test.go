package peers

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

var _ = Describe("the real kubelet", func() {
	It("runs the pods of svc", func(ctx SpecContext) {
		server := upSVC(ctx)
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		runsPods(ctx, launch.Kubelet, cluster, server.Config, server.Kubeconfig)
	})
})

var _ = Describe("svclet", func() {
	It("runs the pods of the real kube-apiserver", func(ctx SpecContext) {
		data, err := os.MkdirTemp(dir, "kube")
		Expect(err).NotTo(HaveOccurred())
		kube, err := launch.UpKube(ctx, data, launch.NoServiceAccounts)
		DeferCleanup(kube.Stop)
		Expect(err).NotTo(HaveOccurred())
		runsPods(ctx, launch.Svclet, kube.Cluster(), kube.Config, kube.Kubeconfig)
	})
})

const podOfEach = `
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {word: sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: NODE
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/svc/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, 'echo "up with $(cat /config/greeting)"; touch /tmp/up; exec sleep 100000']
    env:
    - name: WORD
      valueFrom: {secretKeyRef: {name: secret, key: word}}
    startupProbe:
      exec: {command: [test, -f, /tmp/up]}
      periodSeconds: 1
    readinessProbe:
      exec: {command: [test, -f, /config/greeting]}
      periodSeconds: 1
    livenessProbe:
      exec: {command: [test, -f, /secret/word]}
      periodSeconds: 1
    volumeMounts:
    - {name: config, mountPath: /config}
    - {name: secret, mountPath: /secret}
  volumes:
  - name: config
    configMap: {name: config}
  - name: secret
    secret: {secretName: secret}
`

// runsPods starts an agent, and runs a pod on it until the pod is deleted.
func runsPods(ctx context.Context, kind launch.AgentKind, cluster launch.Cluster, config *rest.Config, kubeconfig string) {
	GinkgoHelper()
	client := newClient(config)
	kubectl := launch.Kubectl{Kubeconfig: kubeconfig, Home: dir}
	run := func(stdin string, args ...string) string {
		GinkgoHelper()
		out, errOut, err := kubectl.Run(ctx, stdin, args...)
		Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, errOut)
		return out
	}
	agent, _ := startAgent(ctx, kind, cluster, client)
	Eventually(func() error { // created by a controller
		_, _, err := kubectl.Run(ctx, "", "get", "namespace", "default")
		return err
	}).Should(Succeed())
	run(onNode(podOfEach, agent.Node), "apply", "--filename=-")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	Eventually(func(g Gomega) {
		g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
	Expect(run("", "logs", "web")).To(Equal("up with hello\n"))
	Expect(run("", "exec", "web", "--", "sh", "-c", "echo $WORD; cat /secret/word")).To(Equal("sesame\nsesame"))
	run(`{"data": {"greeting": "good evening"}}`, "patch", "configmap", "config", "--patch-file=/dev/stdin")
	Eventually(func() string { return run("", "exec", "web", "--", "cat", "/config/greeting") }).
		WithTimeout(configTimeout).Should(Equal("good evening"))
	run("", "delete", "pod", "web", "--timeout=3m")
	Expect(agent.PodLogs).To(BeADirectory())
	Eventually(func() ([]os.DirEntry, error) { return os.ReadDir(agent.PodLogs) }).Should(BeEmpty())
}
