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
		run(ctx, "delete", "namespace", ns, "--timeout=5m")
		var left corev1.ConfigMapList
		Expect(client.List(ctx, &left, ctrlclient.InNamespace(ns))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})

	It("reports what a namespace waits for, and deletes it afterwards", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		held := configMap(ns, "held")
		held.Finalizers = []string{"example.com/hold"}
		Expect(client.Create(ctx, held)).To(Succeed())
		run(ctx, "delete", "namespace", ns, "--wait=false")
		Eventually(condition(ctx, ns, corev1.NamespaceContentRemaining)).Should(Equal("True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances"))
		Eventually(condition(ctx, ns, corev1.NamespaceFinalizersRemaining)).Should(Equal("True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"))
		Eventually(condition(ctx, ns, corev1.NamespaceDeletionDiscoveryFailure)).Should(Equal("False ResourcesDiscovered All resources successfully discovered"))

		run(ctx, "-n", ns, "patch", "configmap", "held", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		eventuallyGone(ctx, namespace(ns))
	})

	It("keeps a namespace while a group cannot be discovered, and reports it", func(ctx SpecContext) {
		const group = "unreachable.example.com"
		ns := newNamespace(ctx)
		Expect(client.Create(ctx, configMap(ns, "a"))).To(Succeed())
		_, errOut, err := kubectl.Run(ctx, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[1]s}
spec:
  group: %[1]s
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: default, name: absent}
`, group), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), errOut)
		DeferCleanup(func(ctx SpecContext) { run(ctx, "delete", "apiservice", "v1."+group, "--ignore-not-found") })

		run(ctx, "delete", "namespace", ns, "--wait=false")
		Eventually(condition(ctx, ns, corev1.NamespaceDeletionDiscoveryFailure)).Should(HavePrefix("True DiscoveryFailed Discovery failed for some groups, 1 failing: " + group + "/v1: "))
		eventuallyGone(ctx, configMap(ns, "a"))

		run(ctx, "delete", "apiservice", "v1."+group)
		eventuallyGone(ctx, namespace(ns))
	})

	It("deletes custom resources, also when their definition is deleted at the same time", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		define(ctx, "boxes.namespace.example.com", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.namespace.example.com}
spec:
  group: namespace.example.com
  scope: Namespaced
  names: {plural: boxes, kind: Box}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`)
		_, errOut, err := kubectl.Run(ctx, fmt.Sprintf("apiVersion: namespace.example.com/v1\nkind: Box\nmetadata: {namespace: %s, name: held, finalizers: [example.com/hold]}\n", ns), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), errOut)

		run(ctx, "delete", "namespace", ns, "--wait=false")
		Eventually(condition(ctx, ns, corev1.NamespaceContentRemaining)).Should(ContainSubstring("boxes.namespace.example.com has 1 resource instances"))
		run(ctx, "delete", "crd", "boxes.namespace.example.com", "--wait=false")
		run(ctx, "-n", ns, "patch", "boxes.namespace.example.com", "held", "--type=json", `--patch=[{"op":"remove","path":"/metadata/finalizers"}]`)
		eventuallyGone(ctx, namespace(ns))
	})

	It("continues after the manager was killed, while other clients write to the namespaces", func(ctx SpecContext) {
		const namespaces, objects = 5, 200
		var names []string
		for range namespaces {
			ns := newNamespace(ctx)
			names = append(names, ns)
			for i := range objects {
				Expect(client.Create(ctx, configMap(ns, fmt.Sprintf("a-%d", i)))).To(Succeed())
			}
		}
		for _, ns := range names {
			run(ctx, "delete", "namespace", ns, "--wait=false")
		}
		killManager(ctx)
		for _, ns := range names {
			_, _, _ = kubectl.Run(ctx, "", "annotate", "namespace", ns, "example.com/note=now") // it may be deleted
		}
		startManager(ctx)
		for _, ns := range names {
			eventuallyGone(ctx, namespace(ns))
			var left corev1.ConfigMapList
			Expect(client.List(ctx, &left, ctrlclient.InNamespace(ns))).To(Succeed())
			Expect(left.Items).To(BeEmpty())
		}
	})
})

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

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
