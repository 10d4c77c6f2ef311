package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("Admission", everyRelease, func() {
	var (
		kubectl *sandbox
		ns      string
	)

	BeforeEach(func(ctx SpecContext) {
		kubectl = newSandbox(ctx)
		ns = kubectl.Namespace
	})

	create := func(ctx context.Context, change func(*corev1.Pod)) (*corev1.Pod, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}}}
		change(pod)
		return client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	}

	It("applies the defaults and limits of a LimitRange", func(ctx SpecContext) {
		_, err := client.CoreV1().LimitRanges(ns).Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "limits"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": resource.MustParse("1")}, Max: corev1.ResourceList{"cpu": resource.MustParse("2")},
			}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			pod, err := create(ctx, func(*corev1.Pod) {})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Spec.Containers[0].Resources.Limits).To(HaveKey(corev1.ResourceCPU))
			g.Expect(pod.Annotations).To(HaveKeyWithValue("kubernetes.io/limit-ranger", HavePrefix("LimitRanger plugin set: cpu")))
		}).Should(Succeed())
		_, err = create(ctx, func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("3")}
		})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("maximum cpu usage per Container is 2, but limit is 3")))
	})

	It("enforces the pod security standard of a namespace's labels, and warns of templates", func(ctx SpecContext) {
		_, err := client.CoreV1().Namespaces().Patch(ctx, ns, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		host := func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }
		Eventually(func() error {
			_, err := create(ctx, host)
			return err
		}).Should(MatchError(ContainSubstring(`violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)))
		_, err = create(ctx, func(*corev1.Pod) {})
		Expect(err).NotTo(HaveOccurred())
		_, warnings := kubectl.both(deploymentOnHost, "create", "-f", "-")
		Expect(warnings).To(ContainSubstring(`Warning: would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`))
	})

	It("gives claims the default class, and new nodes a taint", func(ctx SpecContext) {
		classes := client.StorageV1().StorageClasses()
		_, err := classes.Create(ctx, &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: "admission", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			Provisioner: "example.com/disk",
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return classes.Delete(ctx, "admission", metav1.DeleteOptions{}) })
		Eventually(func(g Gomega) {
			claim, err := client.CoreV1().PersistentVolumeClaims(ns).Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "disk-"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(claim.Spec.StorageClassName).To(HaveValue(Equal("admission")))
		}).Should(Succeed())

		node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Spec.Taints).To(ConsistOf(corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}))
	})
})

// deploymentOnHost has pods in the network of their node.
const deploymentOnHost = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      hostNetwork: true
      containers: [{name: main, image: image}]
`
