package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("a node", func() {
	It("becomes ready", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			var nodes corev1.NodeList
			g.Expect(client.List(ctx, &nodes)).To(Succeed())
			g.Expect(nodes.Items).To(HaveLen(1))
			g.Expect(nodes.Items[0].Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
			g.Expect(nodes.Items[0].Status.NodeInfo.ContainerRuntimeVersion).To(HavePrefix("containerd://"))
		}).Should(Succeed())
	})

	It("gives its pods addresses of the node's podCIDR", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		prefix := netip.MustParsePrefix(clusterCIDR)
		attempt := 0
		// Pods that run before the controller has observed the node have other addresses.
		Eventually(func(g Gomega) {
			attempt++
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("attempt-%d", attempt)},
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
					{Name: "main", Image: busybox, Command: []string{"true"}},
				}},
			}
			g.Expect(client.Create(ctx, pod)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), pod)).To(Succeed())
				g.Expect(pod.Status.PodIP).NotTo(BeEmpty())
			}).Should(Succeed())
			ip, err := netip.ParseAddr(pod.Status.PodIP)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(prefix.Contains(ip)).To(BeTrue(), "%s is not in %s", ip, prefix)
		}).Should(Succeed())
	})

	It("runs a pod to completion, and keeps its log", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		apply(ctx, namespace, `
apiVersion: v1
kind: Pod
metadata:
  name: greeter
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo "hello from $(hostname)"']
`)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greeter"}}
		Eventually(func(g Gomega) {
			g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded))
		}).Should(Succeed())
		log := filepath.Join(node.LogsDir(), fmt.Sprintf("%s_%s_%s", namespace, pod.Name, pod.UID), "main", "0.log")
		content, err := os.ReadFile(log)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content)).To(HaveSuffix("stdout F hello from greeter\n"))

		By("and then forgets it")
		run(ctx, "delete", "pod", pod.Name, "--namespace="+namespace)
		Eventually(log).ShouldNot(BeAnExistingFile())
	})

	It("keeps its pods running while svc is stopped, and resumes them", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		apply(ctx, namespace, `
apiVersion: v1
kind: Pod
metadata:
  name: server
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/svc/server:1
    readinessProbe:
      httpGet: {path: /ready, port: 8080}
      periodSeconds: 1
`)
		key := types.NamespacedName{Namespace: namespace, Name: "server"}
		var before, after corev1.Pod
		ready := And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))
		Eventually(func(g Gomega) {
			g.Expect(client.Get(ctx, key, &before)).To(Succeed())
			g.Expect(before.Status.Conditions).To(ContainElement(ready))
		}).Should(Succeed())
		runtime := listener(node.Endpoint())
		whoAmI := "http://" + before.Status.PodIP + ":8080/whoami"
		self, err := get(ctx, whoAmI)
		Expect(err).NotTo(HaveOccurred())
		Expect(self).To(HavePrefix("system:serviceaccount:" + namespace + ":default "))

		node.Kill()
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		Expect(listener(node.Endpoint())).To(Equal(runtime))
		Consistently(func(g Gomega) {
			g.Expect(client.Get(ctx, key, &after)).To(Succeed())
			g.Expect(after.Status.ContainerStatuses).To(HaveLen(1))
			g.Expect(after.Status.ContainerStatuses[0].ContainerID).To(Equal(before.Status.ContainerStatuses[0].ContainerID))
			g.Expect(after.Status.ContainerStatuses[0].RestartCount).To(BeZero())
		}).WithTimeout(2 * time.Second).Should(Succeed())
		Expect(after.Status.PodIP).To(Equal(before.Status.PodIP))

		By("and their service account: an agent that starts renews the token, and the old one stays valid until clients have read the new one")
		user, _, _ := strings.Cut(self, " ")
		Eventually(func() (string, error) { return get(ctx, whoAmI+"?new=true") }).Should(And(HavePrefix(user+" "), Not(Equal(self))))
		Expect(get(ctx, whoAmI)).To(HavePrefix(user + " "))
	})
})
