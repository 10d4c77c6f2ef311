package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("resourcequota", func() {
	var ns string
	BeforeEach(func(ctx SpecContext) { ns = newNamespace(ctx) })

	It("measures pods, services and claims, as kubectl describe shows", func(ctx SpecContext) {
		addNode(ctx, ns, nil)
		run(ctx, "-n", ns, "create", "quota", "all", "--hard=pods=4,requests.cpu=2,limits.memory=1Gi,services.nodeports=3,requests.storage=10Gi,count/pods=9")
		Eventually(used(ctx, ns, "all")).Should(Equal("count/pods=0 limits.memory=0 pods=0 requests.cpu=0 requests.storage=0 services.nodeports=0"))
		pod := boundPod(ns, "a", ns)
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		}
		ends := pod.DeepCopy()
		ends.Name, ends.Annotations = "ends", map[string]string{"simulate.svc.dev/exit-code": "0"}
		admitted(ctx, pod)
		Expect(client.Create(ctx, pod)).To(Succeed())
		Expect(client.Create(ctx, ends)).To(Succeed())
		run(ctx, "-n", ns, "create", "service", "nodeport", "web", "--tcp=80", "--tcp=81")
		Expect(client.Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "disk"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(""),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}},
			},
		})).To(Succeed())
		Eventually(used(ctx, ns, "all")).Should(Equal("count/pods=2 limits.memory=256Mi pods=1 requests.cpu=500m requests.storage=3Gi services.nodeports=2"))
		Expect(run(ctx, "-n", ns, "describe", "quota", "all")).To(And(
			MatchRegexp(`requests.cpu +500m +2\n`), MatchRegexp(`limits.memory +256Mi +1Gi\n`), MatchRegexp(`services.nodeports +2 +3\n`)))
		By("refusing what would exceed it")
		_, errOut, err := kubectl.Run(ctx, "", "-n", ns, "create", "service", "nodeport", "more", "--tcp=80", "--tcp=81")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(ContainSubstring("exceeded quota: all, requested: services.nodeports=2, used: services.nodeports=2, limited: services.nodeports=3"))
		run(ctx, "-n", ns, "delete", "service/web", "pod/a", "pod/ends")
		Eventually(used(ctx, ns, "all")).Should(Equal("count/pods=0 limits.memory=0 pods=0 requests.cpu=0 requests.storage=3Gi services.nodeports=0"))
	})

	It("counts the objects of any kind, also of one that is defined later", func(ctx SpecContext) {
		run(ctx, "-n", ns, "create", "quota", "counts", "--hard=configmaps=9,count/secrets=9,count/deployments.apps=9,count/widgets.quota.example.com=9")
		Eventually(used(ctx, ns, "counts")).Should(Equal("configmaps=1 count/deployments.apps=0 count/secrets=0")) // kube-root-ca.crt
		admitted(ctx, configMap(ns, "probe"))
		for i := range 3 {
			Expect(client.Create(ctx, configMap(ns, fmt.Sprint("c", i)))).To(Succeed())
		}
		run(ctx, "-n", ns, "create", "deployment", "web", "--image=web", "--replicas=0")
		Eventually(used(ctx, ns, "counts")).Should(Equal("configmaps=4 count/deployments.apps=1 count/secrets=0"))

		applyWidgets(ctx)
		widget := fmt.Sprintf("apiVersion: quota.example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: %s}\n", ns)
		_, errOut, err := kubectl.Run(ctx, widget, "create", "-f", "-")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(ContainSubstring("status unknown for quota: counts, resources: count/widgets.quota.example.com"))
		// Something else in the namespace, or half a minute, and the kind is known.
		run(ctx, "-n", ns, "patch", "quota", "counts", `--patch={"spec":{"hard":{"configmaps":"8"}}}`)
		Eventually(func() error {
			_, _, err := kubectl.Run(ctx, widget, "create", "-f", "-")
			return err
		}).Should(Succeed())
		Eventually(used(ctx, ns, "counts")).Should(Equal("configmaps=4 count/deployments.apps=1 count/secrets=0 count/widgets.quota.example.com=1"))
	})

	It("is never exceeded by 64 clients at once", func(ctx SpecContext) {
		const limit = 40
		run(ctx, "-n", ns, "create", "quota", "few", fmt.Sprintf("--hard=configmaps=%d", limit))
		Eventually(used(ctx, ns, "few")).Should(Equal("configmaps=1")) // kube-root-ca.crt
		admitted(ctx, configMap(ns, "probe"))
		var clients sync.WaitGroup
		for i := range 64 {
			clients.Go(func() {
				defer GinkgoRecover()
				for n := range 2 {
					err := client.Create(ctx, configMap(ns, fmt.Sprintf("c%d-%d", i, n)))
					for apierrors.IsConflict(err) { // the controller has written the quota
						err = client.Create(ctx, configMap(ns, fmt.Sprintf("c%d-%d", i, n)))
					}
					if err != nil {
						Expect(err).To(MatchError(ContainSubstring("exceeded quota: few")))
					}
				}
			})
		}
		clients.Wait()
		all := &corev1.ConfigMapList{}
		Expect(client.List(ctx, all, ctrlclient.InNamespace(ns))).To(Succeed())
		Expect(all.Items).To(HaveLen(limit))
		Eventually(used(ctx, ns, "few")).Should(Equal(fmt.Sprintf("configmaps=%d", limit)))
	})

	It("counts only the pods in its scope, and continues after it was killed", func(ctx SpecContext) {
		addNode(ctx, ns, nil)
		run(ctx, "-n", ns, "create", "quota", "bounded", "--hard=pods=9", "--scopes=Terminating")
		run(ctx, "-n", ns, "create", "quota", "idle", "--hard=pods=9", "--scopes=BestEffort")
		bounded := boundPod(ns, "bounded", ns)
		bounded.Spec.ActiveDeadlineSeconds = ptr.To(int64(600))
		bounded.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		admitted(ctx, bounded)
		admitted(ctx, boundPod(ns, "idle", ns))
		Expect(client.Create(ctx, bounded)).To(Succeed())
		Expect(client.Create(ctx, boundPod(ns, "idle", ns))).To(Succeed())
		Eventually(used(ctx, ns, "bounded")).Should(Equal("pods=1"))
		Eventually(used(ctx, ns, "idle")).Should(Equal("pods=1"))

		killManager(ctx)
		for i := range 5 {
			Expect(client.Create(ctx, boundPod(ns, fmt.Sprint("p", i), ns))).To(Succeed())
		}
		run(ctx, "-n", ns, "delete", "pod", "bounded")
		startManager(ctx)
		for i := range 3 { // another client writes, too
			run(ctx, "-n", ns, "annotate", "quota", "idle", "--overwrite", fmt.Sprintf("n=%d", i))
		}
		Eventually(used(ctx, ns, "bounded")).Should(Equal("pods=0"))
		Eventually(used(ctx, ns, "idle")).Should(Equal("pods=6"))
	})
})

// admitted waits until the quotas of a namespace admit an object: admission follows the
// status that the controller writes by a watch.
func admitted(ctx context.Context, obj ctrlclient.Object) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		return client.Create(ctx, obj.DeepCopyObject().(ctrlclient.Object), ctrlclient.DryRunAll)
	}).Should(Succeed())
}

// used returns the used amounts of a quota.
func used(ctx context.Context, namespace, name string) func() string {
	return func() string {
		q := &corev1.ResourceQuota{}
		if err := client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: name}, q); err != nil {
			return err.Error()
		}
		var words []string
		for name, amount := range q.Status.Used {
			words = append(words, fmt.Sprintf("%s=%s", name, amount.String()))
		}
		slices.Sort(words)
		return strings.Join(words, " ")
	}
}

// applyWidgets serves a custom kind for the spec.
func applyWidgets(ctx context.Context) {
	GinkgoHelper()
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.quota.example.com}
spec:
  group: quota.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	define(ctx, "widgets.quota.example.com", crd)
}
