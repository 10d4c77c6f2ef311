package established

import (
	"testing"
	"testing/synctest"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
)

func TestDefinitionsAreListedAfterTheKeyIsWrittenHoweverLate(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			servers := NewServers(nil, "/registry", "first", embedded)
			informers := After(servers, externalversions.NewSharedInformerFactory(client, 0))
			definitions := informers.Apiextensions().V1().CustomResourceDefinitions().Informer()
			stop := make(chan struct{})
			informers.Start(stop)
			informers.Start(nil) // as the library does
			synctest.Wait()
			if calls := client.Actions(); len(calls) > 0 {
				t.Errorf("embedded %v: requests before the key is written: %v", embedded, calls)
			}
			servers.setListable()
			informers.WaitForCacheSync(stop)
			if !definitions.HasSynced() {
				t.Errorf("embedded %v: the definitions are not listed", embedded)
			}
			close(stop)
			synctest.Wait()
			if !definitions.IsStopped() {
				t.Errorf("embedded %v: the informers do not end", embedded)
			}
		})
	}
}

func TestInformersThatNeverStartEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informers := After(NewServers(nil, "/registry", "first", false), externalversions.NewSharedInformerFactory(fake.NewClientset(), 0))
		stop := make(chan struct{})
		informers.Start(stop)
		close(stop)
		if synced := informers.WaitForCacheSync(stop); len(synced) > 0 {
			t.Errorf("synced %v", synced)
		}
	})
}
