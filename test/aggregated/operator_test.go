package aggregated

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"svc.dev/svc/test/launch"
)

// gadget is the kind of the suite's operator, and gadgetFinalizer its finalizer.
var gadget = schema.GroupVersionKind{Group: "operator.example.com", Version: "v1", Kind: "Gadget"}

const gadgetFinalizer = "operator.example.com/config"

var _ = Describe("an operator at the fleet's own address", func() {
	It("works unmodified: its kind, webhook, owner references and finalizer", func(ctx SpecContext) {
		n := newNamespace()
		config := rest.CopyConfig(host.config)
		config.Host += fleetPath
		startOperator(ctx, config)
		direct, err := client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())

		By("refusing what the webhook refuses")
		pink := newGadget(client.ObjectKey{Namespace: n, Name: "two"}, map[string]any{"color": "pink"})
		Eventually(func() error { return direct.Create(ctx, pink.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("pink is out of stock")))

		By("creating an object, with a default of the webhook")
		key := client.ObjectKey{Namespace: n, Name: "one"}
		Expect(direct.Create(ctx, newGadget(key, nil))).To(Succeed())
		made := newGadget(key, nil)
		Expect(direct.Get(ctx, key, made)).To(Succeed())
		Expect(made.Object["spec"]).To(HaveKeyWithValue("color", "grey"))
		owned := &corev1.ConfigMap{}
		Eventually(func() error { return direct.Get(ctx, key, owned) }).Should(Succeed())
		Expect(owned.Data).To(HaveKeyWithValue("color", "grey"))
		Expect(kubectl(onHost, "get", "configmaps.core.svc.dev", "one", "-n", n, "-o", "jsonpath={.metadata.ownerReferences[0].apiVersion}")).
			To(Equal("operator.example.com.svc.dev/v1"))

		By("keeping the object until the operator has removed its finalizer")
		Expect(direct.Delete(ctx, made)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(direct.Get(ctx, key, owned)) && apierrors.IsNotFound(direct.Get(ctx, key, made))
		}).Should(BeTrue())
	})
})

func newGadget(key client.ObjectKey, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	if spec == nil {
		u.Object["spec"] = map[string]any{}
	}
	u.SetGroupVersionKind(gadget)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// startOperator installs the operator, and runs it until the end of the spec.
func startOperator(ctx context.Context, config *rest.Config) {
	GinkgoHelper()
	ctrl.SetLogger(GinkgoLogr)
	preserve := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets." + gadget.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gadget.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: gadget.Kind, ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: gadget.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}}}},
		},
	}
	crds := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: launch.Patience}
	_, err := envtest.InstallCRDs(config, crds)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(envtest.UninstallCRDs(config, crds)).To(Succeed()) })

	certificates := filepath.Join(dir, "operator")
	Expect(os.MkdirAll(certificates, 0o700)).To(Succeed())
	Expect(host.authority.Server(certificates, "tls", "operator", "127.0.0.1")).To(Succeed())
	port, err := launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	number, err := strconv.Atoi(port)
	Expect(err).NotTo(HaveOccurred())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Logger: GinkgoLogr, LeaderElection: true, LeaderElectionID: "operator", LeaderElectionNamespace: "svc-system",
		LeaseDuration: ptr.To(launch.Patience), RenewDeadline: ptr.To(launch.Patience / 2), // longer than a busy machine delays it
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: number, CertDir: certificates}),
	})
	Expect(err).NotTo(HaveOccurred())
	manager.GetWebhookServer().Register("/default", &admission.Webhook{Handler: admission.HandlerFunc(defaultColor)})
	Expect(ctrl.NewControllerManagedBy(manager).For(newGadget(client.ObjectKey{}, nil)).Owns(&corev1.ConfigMap{}).
		Complete(reconcileGadget(manager.GetClient()))).To(Succeed())
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	})
	registerWebhook(ctx, manager.GetClient(), "https://"+net.JoinHostPort("127.0.0.1", port)+"/default")
}

// registerWebhook registers the operator's webhook.
func registerWebhook(ctx context.Context, c client.Client, url string) {
	GinkgoHelper()
	authority, err := os.ReadFile(host.authority.File)
	Expect(err).NotTo(HaveOccurred())
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "gadgets." + gadget.Group, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{gadget.Group}, APIVersions: []string{"*"}, Resources: []string{"gadgets"}},
			}},
		}},
	}
	Expect(c.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func() {
		kubectl(onFleet, "delete", "mutatingwebhookconfiguration", configuration.Name)
	})
}

// defaultColor is the operator's webhook.
func defaultColor(_ context.Context, req admission.Request) admission.Response {
	if req.Kind.Group != gadget.Group || req.Resource.Group != gadget.Group {
		return admission.Errored(400, fmt.Errorf("the review is of %v, %v", req.Kind, req.Resource))
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(req.Object.Raw); err != nil {
		return admission.Errored(400, err)
	}
	color, set, err := unstructured.NestedString(u.Object, "spec", "color")
	switch {
	case err != nil:
		return admission.Errored(400, err)
	case color == "pink":
		return admission.Denied("pink is out of stock")
	case set:
		return admission.Allowed("")
	}
	if err := unstructured.SetNestedField(u.Object, "grey", "spec", "color"); err != nil {
		return admission.Errored(500, err)
	}
	changed, err := u.MarshalJSON()
	if err != nil {
		return admission.Errored(500, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

// reconcileGadget keeps a config map with the color of each gadget, and removes it itself
// before the gadget goes.
func reconcileGadget(c client.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		g := newGadget(req.NamespacedName, nil)
		if err := c.Get(ctx, req.NamespacedName, g); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
		if !g.GetDeletionTimestamp().IsZero() {
			err := client.IgnoreNotFound(c.Delete(ctx, owned))
			if err == nil && controllerutil.RemoveFinalizer(g, gadgetFinalizer) {
				err = c.Update(ctx, g)
			}
			return reconcile.Result{}, err
		}
		if controllerutil.AddFinalizer(g, gadgetFinalizer) {
			if err := c.Update(ctx, g); err != nil {
				return reconcile.Result{}, err
			}
		}
		color, found, err := unstructured.NestedString(g.Object, "spec", "color")
		if err != nil || !found {
			return reconcile.Result{}, errors.Join(err, errors.New("spec.color is not set"))
		}
		_, err = controllerutil.CreateOrUpdate(ctx, c, owned, func() error {
			owned.Data = map[string]string{"color": color}
			return controllerutil.SetControllerReference(g, owned, c.Scheme())
		})
		return reconcile.Result{}, err
	}
}
