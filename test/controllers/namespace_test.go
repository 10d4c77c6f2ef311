package controllers

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("namespace", func() {
	It("deletes everything in a namespace, and then the namespace", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		for i := range 20 {
			Expect(client.Create(ctx, configMap(ns, fmt.Sprintf("a-%d", i)))).To(Succeed())
		}
		run(ctx, "-n", ns, "create", "deployment", "web", "--image=web")
		run(ctx, "delete", "namespace", ns, "--timeout=30s")
		var left corev1.ConfigMapList
		Expect(client.List(ctx, &left, ctrlclient.InNamespace(ns))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})

	It("tells what a namespace waits for, and goes on when that is done", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		held := configMap(ns, "held")
		held.Finalizers = []string{"example.com/hold"}
		Expect(client.Create(ctx, held)).To(Succeed())
		run(ctx, "delete", "namespace", ns, "--wait=false")
		Eventually(condition(ctx, ns, corev1.NamespaceContentRemaining)).Should(Equal("True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances"))
		Eventually(condition(ctx, ns, corev1.NamespaceFinalizersRemaining)).Should(Equal("True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"))
		Eventually(condition(ctx, ns, corev1.NamespaceDeletionDiscoveryFailure)).Should(Equal("False ResourcesDiscovered All resources successfully discovered"))

		run(ctx, "-n", ns, "patch", "configmap", "held", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		eventuallyGone(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	})
})

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// condition reads a condition of a namespace: status, reason and message.
func condition(ctx SpecContext, namespace string, name corev1.NamespaceConditionType) func() string {
	return func() string {
		ns := &corev1.Namespace{}
		if err := client.Get(ctx, ctrlclient.ObjectKey{Name: namespace}, ns); err != nil {
			return err.Error()
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == name {
				return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		return "none"
	}
}

// eventuallyGone waits until an object does not exist any more.
func eventuallyGone(ctx SpecContext, obj ctrlclient.Object) {
	GinkgoHelper()
	Eventually(func() error { return client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj) }).
		WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
}
