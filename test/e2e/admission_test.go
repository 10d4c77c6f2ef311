package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("Admission", func() {
	var ns string

	BeforeEach(func(ctx SpecContext) {
		made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admission-"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		ns = made.Name
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
})
