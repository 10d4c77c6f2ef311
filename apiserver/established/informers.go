package established

import (
	"reflect"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
)

// Informers are a server's informers of definitions. They list once the server's key has been
// written, however late etcd answers, or once etcd is full: so the server serves custom
// resources, and is ready, only afterwards.
type Informers struct {
	externalversions.SharedInformerFactory
	servers *Servers
	once    sync.Once
	started chan struct{}
}

// After returns informers that start after the key of servers has been written.
func After(servers *Servers, informers externalversions.SharedInformerFactory) *Informers {
	return &Informers{SharedInformerFactory: informers, servers: servers, started: make(chan struct{})}
}

// Start starts the informers without waiting for them. They run until the channel of the
// first call is closed.
func (i *Informers) Start(stop <-chan struct{}) {
	i.once.Do(func() {
		go func() {
			select {
			case <-i.servers.listable:
				i.SharedInformerFactory.Start(stop)
				close(i.started)
			case <-stop:
			}
		}()
	})
}

// WaitForCacheSync waits until the informers have started and synced, or until stop is closed.
func (i *Informers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	select {
	case <-i.started:
		return i.SharedInformerFactory.WaitForCacheSync(stop)
	case <-stop:
		return nil
	}
}
