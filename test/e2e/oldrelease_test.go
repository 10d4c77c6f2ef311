package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

var _ = Describe("svc up --release", func() {
	It("schedules pods at a release without capacities of storage", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		up, err := launch.Up(ctx, filepath.Join(dir, "data"), "--release=1.22", "--node=false", "--controllers=scheduler,serviceaccount")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(up.Kill)
		old, err := kubernetes.NewForConfig(up.Config)
		Expect(err).NotTo(HaveOccurred())
		version, err := old.ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		Expect(version.Minor).To(Equal("22"))

		pods := old.CoreV1().Pods(metav1.NamespaceDefault)
		Eventually(func(ctx context.Context) error { // the account comes after the namespace
			_, err := pods.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			}, metav1.CreateOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		_, err = old.CoreV1().Nodes().Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// TaintNodesByCondition taints a new node until it is reported ready.
		node, err := old.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		node.Spec.Taints = nil
		_, err = old.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(ctx context.Context) (string, error) {
			pod, err := pods.Get(ctx, "a", metav1.GetOptions{})
			return pod.Spec.NodeName, err
		}).WithContext(ctx).Should(Equal("n"))
	})

	DescribeTable("checks the types of validating admission policies of a version before v1", func(ctx SpecContext, release, version string) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		up, err := launch.Up(ctx, filepath.Join(dir, "data"), "--release="+release, "--node=false", "--controllers=validatingadmissionpolicy-status",
			"--feature-gates=ValidatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/"+version)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(up.Kill)
		kubectl := &sandbox{Kubectl: launch.Kubectl{Kubeconfig: up.Kubeconfig, Home: dir, Namespace: "default"}}
		kubectl.pipe(`{apiVersion: admissionregistration.k8s.io/`+version+`, kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {
			matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]},
			validations: [{expression: "object.spec.replicas > 0"}, {expression: "object.spec.replicas > 'many'"}]}}`, "create", "-f", "-")
		Eventually(kubectl.out("", "get", "validatingadmissionpolicies."+version+".admissionregistration.k8s.io", "p",
			"-o", "jsonpath={.status.observedGeneration} {.status.typeChecking.expressionWarnings[*].fieldRef}")).Should(Equal("1 spec.validations[1].expression"))
	},
		Entry(nil, "1.28", "v1beta1"),
		Entry(nil, "1.28", "v1alpha1"),
		Entry(nil, "1.29", "v1beta1"),
	)
})
