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

// yields is the one of the local versions that others may take over.
var yields = local[1]

// others is an APIService of another server.
func others(name string, labels map[string]string) *apiregistrationv1.APIService {
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

func TestAVacantVersionIsServedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, nil, yields)
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io")
		service := c.service(t, "v1.apps")
		if service.Labels[autoregister.AutoRegisterManagedLabel] != "" || service.Labels[vacantLabel] == "" {
			t.Errorf("labels = %v", service.Labels)
		}
		if err := c.registration.Check().Check(nil); err != nil {
			t.Errorf("the check fails: %v", err)
		}
	})
}

func TestAVersionThatIsTakenOverIsLeftAloneUntilItIsVacantAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, nil, nil, yields)
		services := c.services.ApiregistrationV1().APIServices()
		theirs := others("v1.apps", c.service(t, "v1.apps").Labels)
		if _, err := services.Update(t.Context(), theirs, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.service(t, "v1.apps").Spec.Service == nil {
			t.Error("it was taken back")
		}
		if err := services.Delete(t.Context(), "v1.apps", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.service(t, "v1.apps").Spec.Service != nil {
			t.Error("it was not taken back")
		}
	})
}

func TestAVersionThatWasTakenOverIsLeftAloneAtTheStart(t *testing.T) {
	for rule, labels := range map[string]map[string]string{
		"one that was made here first": {vacantLabel: "true"},
		"one that was not":             nil,
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, nil, []*apiregistrationv1.APIService{others("v1.apps", labels)}, yields)
				if c.service(t, "v1.apps").Spec.Service == nil {
					t.Error("it was taken back")
				}
				if err := c.registration.Check().Check(nil); err != nil {
					t.Errorf("the server is not ready before another is: %v", err)
				}
			})
		})
	}
}

func TestWhatIsServedHereNoLongerIsWithdrawnAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, theirs := labelled("v1beta1.metrics.k8s.io", ""), others("v1.custom.metrics.k8s.io", map[string]string{vacantLabel: "true"})
		mine.Labels = map[string]string{vacantLabel: "true"}
		c := start(t, nil, []*apiregistrationv1.APIService{mine, theirs})
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io", "v1.custom.metrics.k8s.io")
	})
}

func TestAVacantVersionThatCannotBeRegisteredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, nil, nil, yields)
		failures := 2
		c.services.PrependReactor("create", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.CreateAction).GetObject().(*apiregistrationv1.APIService).Name == "v1.apps" && failures > 0 {
				failures--
				return true, nil, errors.New("etcd is away")
			}
			return false, nil, nil
		})
		c.run(t)
		time.Sleep(2 * retryInterval)
		synctest.Wait()
		c.expect(t, "v1.", "v1.apps", "v1beta3.flowcontrol.apiserver.k8s.io")
	})
}
