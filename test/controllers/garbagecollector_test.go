package controllers

import (
	"fmt"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const hold = "example.com/hold"

var _ = Describe("garbagecollector", func() {
	It("deletes a tree in the background", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		run(ctx, "-n", ns, "create", "deployment", "web", "--image=web", "--replicas=2")
		Eventually(func() string { return run(ctx, "-n", ns, "get", "pods", "-o=name") }).Should(ContainSubstring("web-"))
		run(ctx, "-n", ns, "delete", "deployment", "web", "--cascade=background")
		Eventually(func() string { return run(ctx, "-n", ns, "get", "replicasets,pods", "-o=name") }).Should(BeEmpty())
	})

	It("deletes a tree in the foreground: leaves first", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		root := owned(ctx, ns, "root")
		middle := owned(ctx, ns, "middle", root)
		leaf := owned(ctx, ns, "leaf", middle)
		held(ctx, leaf)
		run(ctx, "-n", ns, "delete", "configmap", "root", "--cascade=foreground", "--wait=false")
		Eventually(deleting(ctx, leaf)).Should(BeTrue())
		Consistently(func(g Gomega) {
			for _, cm := range []*corev1.ConfigMap{root, middle} {
				g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(cm), cm)).To(Succeed())
				g.Expect(cm.Finalizers).To(ConsistOf(metav1.FinalizerDeleteDependents))
			}
		}).WithContext(ctx).Should(Succeed())
		released(ctx, leaf)
		eventuallyGone(ctx, leaf)
		eventuallyGone(ctx, middle)
		eventuallyGone(ctx, root)
	})

	It("orphans dependents of any kind", func(ctx SpecContext) {
		widgets := newWidgets(ctx)
		ns := newNamespace(ctx)
		root := owned(ctx, ns, "root")
		other := owned(ctx, ns, "other")
		leaf := owned(ctx, ns, "leaf", other, root)
		widget := widgets.owned(ctx, ns, "leaf", root)
		widgets.observed(ctx)
		run(ctx, "-n", ns, "delete", "configmap", "root", "--cascade=orphan")
		Consistently(func(g Gomega) {
			g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(leaf), leaf)).To(Succeed())
			g.Expect(leaf.OwnerReferences).To(ConsistOf(HaveField("Name", "other")))
			g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(widget), widget)).To(Succeed())
			g.Expect(widget.GetOwnerReferences()).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	})

	It("keeps a dependent of another owner, and removes the reference to the deleted one", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		one, two := owned(ctx, ns, "one"), owned(ctx, ns, "two")
		leaf := owned(ctx, ns, "leaf", one, two)
		run(ctx, "-n", ns, "delete", "configmap", "one")
		Eventually(func() []metav1.OwnerReference {
			Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(leaf), leaf)).To(Succeed())
			return leaf.OwnerReferences
		}).WithContext(ctx).Should(ConsistOf(HaveField("Name", "two")))
		run(ctx, "-n", ns, "delete", "configmap", "two")
		eventuallyGone(ctx, leaf)
	})

	It("collects custom resources whose definitions are created and deleted", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		widgets := newWidgets(ctx)
		widget := widgets.owned(ctx, ns, "root")
		middle := owned(ctx, ns, "middle", widget)
		leaf := widgets.owned(ctx, ns, "leaf", middle)
		last := owned(ctx, ns, "last", leaf)
		widgets.observed(ctx)
		run(ctx, "-n", ns, "delete", widgets.resource, "root", "--cascade=foreground")
		for _, obj := range []ctrlclient.Object{last, leaf, middle} {
			Expect(apierrors.IsNotFound(client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj))).To(BeTrue(), obj.GetName())
		}

		By("removing the kind")
		widget = widgets.owned(ctx, ns, "again")
		dependent := owned(ctx, ns, "dependent", widget)
		widgets.observed(ctx)
		run(ctx, "delete", "customresourcedefinition", widgets.resource)
		eventuallyGone(ctx, dependent)
	})

	It("keeps dependents of a kind that is not served", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		missing := &unstructured.Unstructured{}
		missing.SetAPIVersion("absent.example.com/v1")
		missing.SetKind("Thing")
		missing.SetName("thing")
		missing.SetUID("b6f0a6c5-3d1c-4d0a-8f6c-0c7d8f4b2c11")
		leaf := owned(ctx, ns, "leaf", missing)
		unreachable := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.absent.example.com"},
			"spec": map[string]any{
				"group": "absent.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
				"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": ns, "name": "absent"},
			},
		}}
		Expect(client.Create(ctx, unreachable)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, unreachable)).To(Succeed()) })

		root := owned(ctx, ns, "root")
		other := owned(ctx, ns, "other", root)
		run(ctx, "-n", ns, "delete", "configmap", "root")
		eventuallyGone(ctx, other)
		Consistently(func() error { return client.Get(ctx, ctrlclient.ObjectKeyFromObject(leaf), leaf) }).WithContext(ctx).Should(Succeed())
	})

	It("records an event for owners in other namespaces, and deletes nothing else", func(ctx SpecContext) {
		ns, elsewhere := newNamespace(ctx), newNamespace(ctx)
		root := owned(ctx, ns, "root")
		good := owned(ctx, ns, "good", root)
		bad := owned(ctx, elsewhere, "bad", root)
		eventuallyGone(ctx, bad)
		Eventually(func() string { return run(ctx, "-n", elsewhere, "get", "events") }).Should(SatisfyAll(
			MatchRegexp(`Warning +OwnerRefInvalidNamespace +configmap/bad`),
			ContainSubstring(fmt.Sprintf(`ownerRef [v1/ConfigMap, namespace: %s, name: root, uid: %s] does not exist in namespace "%s"`, elsewhere, root.UID, elsewhere)),
		))

		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: ns, OwnerReferences: references(root)}, Value: 1}
		Expect(client.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.Delete(ctx, class)).To(Succeed()) })
		Eventually(func() string { return run(ctx, "-n", "default", "get", "events") }).Should(MatchRegexp(`OwnerRefInvalidNamespace +priorityclass/` + ns))
		Consistently(func(g Gomega) {
			for _, obj := range []ctrlclient.Object{root, good, class} {
				g.Expect(client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)).To(Succeed())
			}
		}).WithContext(ctx).Should(Succeed())
	})

	It("distinguishes owners of the same name by UID", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		first := owned(ctx, ns, "root")
		run(ctx, "-n", ns, "delete", "configmap", "root")
		second := owned(ctx, ns, "root")
		late, leaf := owned(ctx, ns, "late", first), owned(ctx, ns, "leaf", second)
		eventuallyGone(ctx, late)
		Consistently(func() error { return client.Get(ctx, ctrlclient.ObjectKeyFromObject(leaf), leaf) }).WithContext(ctx).Should(Succeed())
	})

	It("deletes owners that own one another in the foreground", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		one, two := owned(ctx, ns, "one"), owned(ctx, ns, "two")
		three := owned(ctx, ns, "three", two)
		for owner, dependent := range map[*corev1.ConfigMap]*corev1.ConfigMap{three: one, one: two} {
			dependent.OwnerReferences = references(owner)
			Expect(client.Update(ctx, dependent)).To(Succeed())
		}
		run(ctx, "-n", ns, "delete", "configmap", "one", "--cascade=foreground", "--timeout=5m")
		eventuallyGone(ctx, two)
		eventuallyGone(ctx, three)
	})

	It("deletes an object that another client keeps writing", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		root := owned(ctx, ns, "root")
		leaf := owned(ctx, ns, "leaf", root)
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			for i := 0; ; i++ {
				patch := []byte(`{"data": {"written": "` + strconv.Itoa(i) + `"}}`)
				err := client.Patch(ctx, configMap(ns, leaf.Name), ctrlclient.RawPatch(types.MergePatchType, patch))
				if apierrors.IsNotFound(err) || ctx.Err() != nil {
					return
				}
				Expect(err).NotTo(HaveOccurred())
			}
		}()
		run(ctx, "-n", ns, "delete", "configmap", "root", "--cascade=foreground", "--timeout=5m")
		Eventually(done).Should(BeClosed())
	})

	It("collects all garbage when it is killed, also in terminating namespaces", func(ctx SpecContext) {
		ns, going := newNamespace(ctx), newNamespace(ctx)
		for _, in := range []string{ns, going} {
			root := owned(ctx, in, "root")
			owned(ctx, in, "stays")
			many(func(i int) { owned(ctx, in, fmt.Sprintf("leaf-%d", i), root) })
		}
		for _, in := range []string{ns, going} {
			run(ctx, "-n", in, "delete", "configmap", "root")
		}
		run(ctx, "delete", "namespace", going, "--wait=false")
		Eventually(configMaps(ctx, ns)).Should(BeNumerically("<", 800))
		killManager(ctx)
		startManager(ctx)
		Eventually(configMaps(ctx, ns)).Should(Equal(1))
		eventuallyGone(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}})
		Consistently(func() error {
			return client.Get(ctx, ctrlclient.ObjectKey{Namespace: ns, Name: "stays"}, &corev1.ConfigMap{})
		}).WithContext(ctx).Should(Succeed())
	})
})

// many creates 1,000 objects, several at a time.
func many(create func(int)) {
	GinkgoHelper()
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			defer GinkgoRecover()
			for i := worker; i < 1000; i += 10 {
				create(i)
			}
		})
	}
	all.Wait()
}

// configMaps counts those of a namespace, besides the one that every namespace has.
func configMaps(ctx SpecContext, namespace string) func() (int, error) {
	return func() (int, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		err := client.List(ctx, list, ctrlclient.InNamespace(namespace),
			ctrlclient.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.name", "kube-root-ca.crt")})
		return len(list.Items), err
	}
}

// owned creates a ConfigMap that blocks the deletion of its owners.
func owned(ctx SpecContext, namespace, name string, owners ...ctrlclient.Object) *corev1.ConfigMap {
	GinkgoHelper()
	cm := configMap(namespace, name)
	cm.OwnerReferences = references(owners...)
	Expect(client.Create(ctx, cm)).To(Succeed())
	return cm
}

func references(owners ...ctrlclient.Object) []metav1.OwnerReference {
	GinkgoHelper()
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		gvk, err := apiutil.GVKForObject(owner, client.Scheme())
		Expect(err).NotTo(HaveOccurred())
		refs = append(refs, metav1.OwnerReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: new(true),
		})
	}
	return refs
}

// held adds a finalizer, and released removes it.
func held(ctx SpecContext, obj ctrlclient.Object) {
	GinkgoHelper()
	obj.SetFinalizers([]string{hold})
	Expect(client.Update(ctx, obj)).To(Succeed())
	DeferCleanup(released, obj)
}

func released(ctx SpecContext, obj ctrlclient.Object) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj); err != nil {
			return ctrlclient.IgnoreNotFound(err)
		}
		obj.SetFinalizers(nil)
		return client.Update(ctx, obj)
	})).To(Succeed())
}

func deleting(ctx SpecContext, obj ctrlclient.Object) func() (bool, error) {
	return func() (bool, error) {
		err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)
		return obj.GetDeletionTimestamp() != nil, err
	}
}

// widgetKind is a custom kind of one spec.
type widgetKind struct {
	kind     schema.GroupVersionKind
	resource string
}

// newWidgets creates a custom kind. It is served, and watched by the collector, when
// this returns.
func newWidgets(ctx SpecContext) widgetKind {
	GinkgoHelper()
	group := fmt.Sprintf("g%d.example.com", GinkgoRandomSeed()+int64(CurrentSpecReport().LineNumber()))
	w := widgetKind{schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Widget"}, "widgets." + group}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: w.resource},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
	Expect(client.Create(ctx, crd)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, crd))).To(Succeed()) })
	run(ctx, "wait", "--for=condition=Established", "customresourcedefinition/"+w.resource, "--timeout=5m")
	w.observed(ctx)
	return w
}

// observed returns when the collector has observed the widgets and the config maps that
// there are: it watches each kind by itself, and collects these, which are created last.
func (w widgetKind) observed(ctx SpecContext) {
	GinkgoHelper()
	ns := newNamespace(ctx)
	owner := owned(ctx, ns, "owner")
	Expect(client.Delete(ctx, owner)).To(Succeed())
	widget, cm := w.owned(ctx, ns, "collected", owner), owned(ctx, ns, "collected", owner)
	eventuallyGone(ctx, widget)
	eventuallyGone(ctx, cm)
}

// owned creates a widget, as soon as widgets are served.
func (w widgetKind) owned(ctx SpecContext, namespace, name string, owners ...ctrlclient.Object) *unstructured.Unstructured {
	GinkgoHelper()
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(w.kind)
	widget.SetNamespace(namespace)
	widget.SetName(name)
	widget.SetOwnerReferences(references(owners...))
	Eventually(func() error { return client.Create(ctx, widget) }).WithContext(ctx).Should(Succeed())
	return widget
}
