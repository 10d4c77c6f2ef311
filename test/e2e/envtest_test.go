package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	runtimeclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/test/launch"
)

// TestMain lets the test binary be the etcd that envtest starts: under that
// name, it is one.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "etcd" {
		if err := runEtcd(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runEtcd is an etcd of one member, with the flags that envtest gives to etcd.
func runEtcd(args []string) error {
	config := embed.NewConfig()
	config.LogLevel, config.UnsafeNoFsync = "error", true
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.StringVar(&config.Dir, "data-dir", "", "Directory of the data.")
	for name, urls := range map[string]*[]url.URL{
		"listen-client-urls":    &config.ListenClientUrls,
		"advertise-client-urls": &config.AdvertiseClientUrls,
		"listen-peer-urls":      &config.ListenPeerUrls,
	} {
		flags.Func(name, "One URL.", func(value string) error {
			u, err := url.Parse(value)
			if err == nil {
				*urls = []url.URL{*u}
			}
			return err
		})
	}
	if err := flags.Parse(args); err != nil {
		if err == flag.ErrHelp { //nolint:errorlint // it is returned as it is
			return nil
		}
		return err
	}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	e, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case err = <-e.Err():
	case <-ctx.Done():
	}
	e.Close()
	return err
}

// greeting is the kind of the suite's controller.
var greeting = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Greeting"}

func newGreeting(name, text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(greeting)
	u.SetNamespace("default")
	u.SetName(name)
	if text != "" {
		u.Object["spec"] = map[string]any{"text": text}
	}
	return u
}

func greetings() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "greetings.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: greeting.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "greetings", Singular: "greeting", Kind: greeting.Kind, ListKind: "GreetingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: greeting.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec":   {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"text": {Type: "string", MinLength: ptr.To[int64](1)}}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"said": {Type: "boolean"}}},
					},
				}},
			}},
		},
	}
}

// sayGreetings is a reconciler that puts a greeting's text into a config map.
func sayGreetings(c runtimeclient.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		g := newGreeting(req.Name, "")
		if err := c.Get(ctx, req.NamespacedName, g); err != nil {
			return reconcile.Result{}, runtimeclient.IgnoreNotFound(err)
		}
		text, _, err := unstructured.NestedString(g.Object, "spec", "text")
		if err != nil {
			return reconcile.Result{}, err
		}
		said := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
		if _, err := controllerutil.CreateOrUpdate(ctx, c, said, func() error {
			said.Data = map[string]string{"text": text}
			return controllerutil.SetControllerReference(g, said, c.Scheme())
		}); err != nil {
			return reconcile.Result{}, err
		}
		g.Object["status"] = map[string]any{"said": true}
		return reconcile.Result{}, c.Status().Update(ctx, g)
	}
}

// newAssets makes a directory with the programs that envtest runs.
func newAssets() string {
	GinkgoHelper()
	assets, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, assets)
	svc, err := launch.Binary()
	Expect(err).NotTo(HaveOccurred())
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	for name, program := range map[string]string{"kube-apiserver": svc, "kubectl": svc, "etcd": self} {
		Expect(os.Symlink(program, filepath.Join(assets, name))).To(Succeed())
	}
	return assets
}

var _ = Describe("A controller's test suite", func() {
	It("runs as docs/testing-controllers.md shows it", func(ctx SpecContext) {
		test := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run=TestConfigMapsGetTheLabelOfTheirTeam", "./example")
		test.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+newAssets())
		out, err := test.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(ContainSubstring("--- PASS: TestConfigMapsGetTheLabelOfTheirTeam"))
	})

	It("runs envtest on links to svc", func(ctx SpecContext) {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", newAssets())
		log := gbytes.NewBuffer()
		logged := func() string { return string(log.Contents()) }
		env := &envtest.Environment{
			CRDs:                     []*apiextensionsv1.CustomResourceDefinition{greetings()},
			CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: launch.Patience},
			ControlPlaneStartTimeout: launch.Patience,
			ControlPlaneStopTimeout:  launch.Patience,
		}
		env.ControlPlane.GetAPIServer().Err = log
		env.ControlPlane.Etcd = &envtest.Etcd{Err: log}
		DeferCleanup(func() {
			Expect(env.Stop()).To(Succeed(), logged)
			Expect(logged()).NotTo(ContainSubstring("panic"))
			Expect(logged()).NotTo(ContainSubstring("goroutine "))
		})
		config, err := env.Start()
		Expect(err).NotTo(HaveOccurred(), logged)
		direct, err := runtimeclient.New(config, runtimeclient.Options{})
		Expect(err).NotTo(HaveOccurred())

		By("running a manager")
		stop := startGreeter(ctx, config)
		Expect(direct.Create(ctx, newGreeting("hello", "good morning"))).To(Succeed())
		said := &corev1.ConfigMap{}
		Eventually(func() error {
			return direct.Get(ctx, runtimeclient.ObjectKey{Namespace: "default", Name: "hello"}, said)
		}).Should(Succeed())
		Expect(said.Data).To(HaveKeyWithValue("text", "good morning"))
		Expect(said.OwnerReferences).To(ConsistOf(HaveField("Kind", greeting.Kind)))
		Eventually(func() (any, error) {
			g := newGreeting("hello", "")
			err := direct.Get(ctx, runtimeclient.ObjectKeyFromObject(g), g)
			return g.Object["status"], err
		}).Should(HaveKeyWithValue("said", true))

		By("taking pods that no service account and no permission stands behind")
		Expect(direct.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "privileged"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
			}}},
		})).To(Succeed())

		By("adding a user, who may do what roles say")
		user, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, nil)
		Expect(err).NotTo(HaveOccurred())
		jane, err := runtimeclient.New(user.Config(), runtimeclient.Options{})
		Expect(err).NotTo(HaveOccurred())
		list := func() error { return jane.List(ctx, &corev1.ConfigMapList{}, runtimeclient.InNamespace("default")) }
		Expect(list()).To(Satisfy(apierrors.IsForbidden))
		for _, obj := range readers() {
			Expect(direct.Create(ctx, obj)).To(Succeed())
		}
		Eventually(list).Should(Succeed())
		Expect(jane.Create(ctx, newGreeting("rude", "x"))).To(Satisfy(apierrors.IsForbidden))

		By("running kubectl as that user")
		kubectl, err := user.Kubectl()
		Expect(err).NotTo(HaveOccurred())
		stdout, stderr, err := kubectl.Run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		Expect(err).NotTo(HaveOccurred(), func() string { text, _ := io.ReadAll(stderr); return string(text) })
		Expect(io.ReadAll(stdout)).To(BeEquivalentTo("jane"))

		By("stopping the manager before the servers")
		stop()
	})
})

// startGreeter runs a manager until the function that it returns is called.
func startGreeter(ctx context.Context, config *rest.Config) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	DeferCleanup(cancel)
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: GinkgoLogr})
	Expect(err).NotTo(HaveOccurred())
	Expect(ctrl.NewControllerManagedBy(manager).For(newGreeting("", "")).Owns(&corev1.ConfigMap{}).
		Complete(sayGreetings(manager.GetClient()))).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	return func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	}
}

// readers are a role for reading config maps and its binding to a group.
func readers() []runtimeclient.Object {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "readers"}
	return []runtimeclient.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}}},
	}
}
