package aggregation

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// fallbackVersion is the local version that another server may take over.
var fallbackVersion = local[1]

// ofAnotherServer is an APIService of another server.
func ofAnotherServer(name string, labels map[string]string) *apiregistrationv1.APIService {
	service := labelled(name, "")
	service.Labels = labels
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "theirs"}
	return service
}

func (c cluster) service(t *testing.T, name string) *apiregistrationv1.APIService {
	t.Helper()
	service, err := c.services.ApiregistrationV1().APIServices().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func TestAVersionWithoutAnotherServerIsServedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, nil, fallbackVersion)
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io")
		service := c.service(t, "v1.apps")
		if service.Labels[autoregister.AutoRegisterManagedLabel] != "" || service.Labels[fallbackLabel] == "" {
			t.Errorf("labels = %v", service.Labels)
		}
		if err := c.registration.Check().Check(nil); err != nil {
			t.Errorf("the check fails: %v", err)
		}
	})
}

func TestAnotherServersAPIServiceStaysUntilItIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, nil, fallbackVersion)
		services := c.services.ApiregistrationV1().APIServices()
		theirs := ofAnotherServer("v1.apps", c.service(t, "v1.apps").Labels)
		if _, err := services.Update(t.Context(), theirs, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.service(t, "v1.apps").Spec.Service == nil {
			t.Error("the APIService was changed")
		}
		if err := services.Delete(t.Context(), "v1.apps", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.service(t, "v1.apps").Spec.Service != nil {
			t.Error("the APIService was not created again")
		}
	})
}

func TestAnotherServersAPIServiceStaysAtTheStart(t *testing.T) {
	for rule, labels := range map[string]map[string]string{
		"one that this server created first": {fallbackLabel: "true"},
		"one that was not":                   nil,
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, nil, []*apiregistrationv1.APIService{ofAnotherServer("v1.apps", labels)}, fallbackVersion)
				if c.service(t, "v1.apps").Spec.Service == nil {
					t.Error("the APIService was changed")
				}
				if err := c.registration.Check().Check(nil); err != nil {
					t.Errorf("the server is not ready before another is: %v", err)
				}
			})
		})
	}
}

func TestAFallbackThatIsNoLongerServedIsRemovedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := labelled("v1beta1.metrics.k8s.io", ""), ofAnotherServer("v1.custom.metrics.k8s.io", map[string]string{fallbackLabel: "true"})
		mine.Labels = map[string]string{fallbackLabel: "true"}
		c := start(t, nil, []*apiregistrationv1.APIService{mine, theirs})
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io", "v1.custom.metrics.k8s.io")
	})
}

func TestAFailedRegistrationOfAFallbackIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, nil, nil, fallbackVersion)
		failures := 2
		c.services.PrependReactor("create", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.CreateAction).GetObject().(*apiregistrationv1.APIService).Name == "v1.apps" && failures > 0 {
				failures--
				return true, nil, errors.New("etcd is not available")
			}
			return false, nil, nil
		})
		c.run(t)
		time.Sleep(2 * retryInterval)
		synctest.Wait()
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io")
	})
}
