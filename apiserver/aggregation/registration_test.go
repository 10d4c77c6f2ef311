package aggregation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	"k8s.io/utils/clock"
)

var local = []schema.GroupVersion{
	{Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"},
}

func TestLocalServicesAreInTheOrderOfDiscovery(t *testing.T) {
	var got []string
	for _, s := range LocalServices(append(local, schema.GroupVersion{Group: "apps", Version: "v1alpha1"})) {
		got = append(got, fmt.Sprintf("%s %d/%d", s.Name, s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority))
	}
	want := []string{"v1. 18000/15", "v1.apps 17800/15", "v1beta3.flowcontrol.apiserver.k8s.io 17750/9", "v1alpha1.apps 17800/1"}
	if !slices.Equal(got, want) {
		t.Errorf("services = %q\nwant %q", got, want)
	}
}

func TestLocalVersionsAreRegisteredAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, []*apiregistrationv1.APIService{
			// A version of a former release, and one that a user has created.
			labelled("v1beta2.flowcontrol.apiserver.k8s.io", "onstart"),
			labelled("v1.metrics.k8s.io", ""),
		})
		c.expect(t, "v1.", "v1.apps", "v1.metrics.k8s.io", "v1beta3.flowcontrol.apiserver.k8s.io")
		if err := c.registration.Check().Check(nil); err != nil {
			t.Errorf("the check fails: %v", err)
		}
	})
}

func TestTheCheckNamesMissingAPIServices(t *testing.T) {
	c := prepare(t, nil, nil)
	err := c.registration.Check().Check(nil)
	if err == nil || err.Error() != "missing APIService: v1., v1.apps, v1beta3.flowcontrol.apiserver.k8s.io" {
		t.Errorf("error = %v", err)
	}
}

func TestMissingAPIServicesDoNotFailTheCheckWhileEtcdIsFull(t *testing.T) {
	c, full := prepare(t, nil, nil), true
	c.registration.full = func() bool { return full }
	if err := c.registration.Check().Check(nil); err != nil {
		t.Errorf("at a full etcd: %v", err)
	}
	full = false
	if err := c.registration.Check().Check(nil); err == nil {
		t.Error("the check passes when etcd has space")
	}
}

func TestVersionsAreRegisteredAndRemovedWithTheirDefinitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, []*apiextensionsv1.CustomResourceDefinition{
			definition("widgets", "shop.example", "v1", "v2"),
			definition("gadgets", "shop.example", "v1"),
			definition("intruders", "apps", "v1"),
		}, []*apiregistrationv1.APIService{
			labelled("v1.shop.example", "true"), labelled("v1.gone.example", "true"),
		})
		always := []string{"v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io"}
		c.expect(t, append(always, "v1.shop.example", "v2.shop.example")...)

		c.update(t, definition("widgets", "shop.example", "v2", "v3"))
		c.expect(t, append(always, "v1.shop.example", "v2.shop.example", "v3.shop.example")...)

		unserved := definition("gadgets", "shop.example", "v1")
		unserved.Spec.Versions[0].Served = false
		c.update(t, unserved)
		c.expect(t, append(always, "v2.shop.example", "v3.shop.example")...)

		c.remove(t, "widgets.shop.example")
		c.remove(t, "intruders.apps")
		c.expect(t, always...)
	})
}

func TestDefinitionsHaveLowPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, []*apiextensionsv1.CustomResourceDefinition{definition("widgets", "shop.example", "v1")}, nil)
		service, err := c.services.ApiregistrationV1().APIServices().Get(t.Context(), "v1.shop.example", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if service.Spec.GroupPriorityMinimum != 1000 || service.Spec.VersionPriority != 100 || service.Spec.Service != nil {
			t.Errorf("spec = %+v", service.Spec)
		}
	})
}

// cluster is a registration with the clients that it works on.
type cluster struct {
	registration *Registration
	crds         *apiextensionsfake.Clientset
	services     *apiregistrationfake.Clientset
	informers    func(ctx context.Context) (shutdown func())
}

// prepare makes a registration whose informers have not started.
func prepare(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition, services []*apiregistrationv1.APIService, fallback ...schema.GroupVersion) cluster {
	t.Helper()
	c := cluster{
		crds:     apiextensionsfake.NewSimpleClientset(objects(crds)...),
		services: apiregistrationfake.NewSimpleClientset(objects(services)...),
	}
	// The server marks a local APIService as available when it is made.
	c.services.PrependReactor("create", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		service := action.(clienttesting.CreateAction).GetObject().(*apiregistrationv1.APIService)
		helper.SetAPIServiceCondition(service, helper.NewLocalAvailableAPIServiceCondition())
		return false, nil, nil
	})
	crdInformers := apiextensionsinformers.NewSharedInformerFactory(c.crds, 0)
	serviceInformers := apiregistrationinformers.NewSharedInformerFactory(c.services, 0)
	var err error
	if c.registration, err = New(Config{
		Local:       local,
		Fallback:    fallback,
		CRDs:        crdInformers.Apiextensions().V1().CustomResourceDefinitions(),
		APIServices: serviceInformers.Apiregistration().V1().APIServices(),
		Client:      c.services.ApiregistrationV1(),
		Clock:       clock.RealClock{},
	}); err != nil {
		t.Fatal(err)
	}
	c.informers = func(ctx context.Context) func() {
		crdInformers.Start(ctx.Done())
		serviceInformers.Start(ctx.Done())
		return func() {
			crdInformers.Shutdown()
			serviceInformers.Shutdown()
		}
	}
	return c
}

// start makes a registration and runs it for the rest of the test. No time of the
// fake clock passes, so that nothing is found by polling.
func start(t *testing.T, crds []*apiextensionsv1.CustomResourceDefinition, services []*apiregistrationv1.APIService, fallback ...schema.GroupVersion) cluster {
	t.Helper()
	c := prepare(t, crds, services, fallback...)
	c.run(t)
	return c
}

// run is the second half of start.
func (c cluster) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	shutdown := c.informers(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.registration.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		shutdown()
	})
	synctest.Wait()
}

func (c cluster) update(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (c cluster) remove(t *testing.T, name string) {
	t.Helper()
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// expect fails the test unless exactly these APIServices exist.
func (c cluster) expect(t *testing.T, want ...string) {
	t.Helper()
	list, err := c.services.ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list.Items {
		got = append(got, s.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("APIServices = %q\nwant %q", got, want)
	}
}

func definition(plural, group string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group}}
	crd.Spec.Group = group
	for _, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: true})
	}
	return crd
}

// labelled is an APIService that exists before the start.
func labelled(name, managed string) *apiregistrationv1.APIService {
	version, group, _ := strings.Cut(name, ".")
	service := apiService(schema.GroupVersion{Group: group, Version: version}, 1, 1)
	if managed != "" {
		service.Labels = map[string]string{autoregister.AutoRegisterManagedLabel: managed}
	}
	return service
}

func objects[T runtime.Object](items []T) []runtime.Object {
	var result []runtime.Object
	for _, item := range items {
		result = append(result, item)
	}
	return result
}
