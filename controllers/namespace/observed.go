package namespace

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// observed has the times at which the controller first observed the deletion of namespaces,
// by name, as long as the namespaces are requeued.
type observed struct {
	mu    sync.Mutex
	times map[string]observation
}

type observation struct {
	uid types.UID
	at  time.Time
}

// at returns the time of a namespace that is being deleted: now, if it has none.
func (o *observed) at(ns *corev1.Namespace, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, ok := o.times[ns.Name]; ok && known.uid == ns.UID {
		return known.at
	}
	if o.times == nil {
		o.times = map[string]observation{}
	}
	o.times[ns.Name] = observation{ns.UID, now}
	return now
}

func (o *observed) forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.times, name)
}
