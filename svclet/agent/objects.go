package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/executor"
	store "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/podmanager"
	"svc.dev/svc/svclet/volume"
)

// objects are the objects of the API that pods refer to.
type objects interface {
	executor.Objects
	volume.Objects
}

// apiObjects are those of an API server.
type apiObjects struct {
	*store.Store
	*apiclient.Clients
}

// noObjects are those of standalone mode.
type noObjects struct{ store.None }

// RuntimeHandler implements executor.Objects.
func (noObjects) RuntimeHandler(context.Context, string) (string, error) {
	return "", errors.New("runtime classes need an API server: leave runtimeClassName out")
}

// newObjects makes the store of API objects that pods refer to, which adds changes of
// them to the queue. In standalone mode there are none.
func newObjects(base common, conn connections, queue *podmanager.Queue, o overrides) (objects, tasks) {
	var all objects = noObjects{}
	var t tasks
	if conn.clients != nil {
		kept := store.New(store.Options{
			Client: conn.clients.Client, Changed: queue.ObjectsChanged, NodeName: base.name, Clock: base.Clock,
			Warn: func(p *corev1.Pod, reason, message string) {
				conn.events.Event(p, pod.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message})
			},
		})
		t.parts = append(t.parts, func(ctx context.Context) { <-ctx.Done(); kept.Close() })
		all = apiObjects{kept, conn.clients}
	}
	if o.objects != nil {
		all = o.objects(all)
	}
	return all, t
}
