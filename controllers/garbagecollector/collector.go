package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// collector executes the graph's actions. It reads the metadata of all objects; it
// deletes dependents, and removes owner references and the finalizers
// foregroundDeletion and orphan.
type collector struct {
	metadata metadata.Interface
	events   record.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[graph.Subject]

	mu    sync.Mutex
	graph *graph.Graph
	// resources are the served resources of the kinds in the graph.
	resources map[schema.GroupKind]discovery.Resource
}

// triesBeforeError is the number of failures after which an action is logged as an
// error: some seconds.
const triesBeforeError = 8

func newCollector(client metadata.Interface, events record.EventRecorder, c clock.WithTicker) *collector {
	return &collector{
		metadata:  client,
		events:    events,
		queue:     newQueue(c),
		graph:     graph.New(),
		resources: map[schema.GroupKind]discovery.Resource{},
	}
}

// run executes actions until ctx is done and the workers have ended.
func (c *collector) run(ctx context.Context, workers int) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// change calls how with the graph, and then enqueues the ready subjects and records
// the events.
func (c *collector) change(how func(*graph.Graph)) {
	c.mu.Lock()
	how(c.graph)
	ready, events := c.graph.Ready(), c.eventsFor(c.graph.Notices())
	c.mu.Unlock()
	for _, s := range ready {
		c.queue.Add(s)
	}
	for _, event := range events {
		c.events.Event(event.object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", event.message)
	}
}

// objectEvent is an event to record.
type objectEvent struct {
	object  *corev1.ObjectReference
	message string
}

// eventsFor returns the events for notices, with Kubernetes' messages.
func (c *collector) eventsFor(notices []graph.Notice) []objectEvent {
	var events []objectEvent
	for _, n := range notices {
		o := n.Object
		events = append(events, objectEvent{
			object: &corev1.ObjectReference{APIVersion: c.apiVersion(o.Kind), Kind: o.Kind.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID},
			message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				c.apiVersion(n.Owner.Kind), n.Owner.Kind.Kind, n.Owner.Namespace, n.Owner.Name, n.Owner.UID, n.Owner.Namespace),
		})
	}
	return events
}

func (c *collector) apiVersion(kind schema.GroupKind) string {
	if r, ok := c.resources[kind]; ok {
		return r.GroupVersion().String()
	}
	return kind.Group
}

// work executes the action of the next subject. It returns false when the queue is
// shut down.
func (c *collector) work(ctx context.Context) bool {
	s, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(s)
	var a graph.Action
	var target discovery.Resource
	var served bool
	c.change(func(g *graph.Graph) {
		a = g.Next(s)
		target, served = c.resources[a.Object.Kind]
	})
	if a.Verb == graph.Nothing {
		c.queue.Forget(s)
		return true
	}
	result, err := graph.Result{}, errNotServed
	if served {
		result, err = perform(ctx, c.metadata, target, a)
	}
	if ctx.Err() != nil {
		return true
	}
	c.report(ctx, s, a, result, err)
	requeue := graph.Settled
	c.change(func(g *graph.Graph) { requeue = g.Complete(s, a, result) })
	switch requeue {
	case graph.Settled:
		c.queue.Forget(s)
	case graph.Backoff:
		c.queue.AddRateLimited(s)
	}
	return true
}

var errNotServed = errors.New("the kind is not served")

// report logs the result of an action, and as an error one that keeps failing.
func (c *collector) report(ctx context.Context, s graph.Subject, a graph.Action, result graph.Result, err error) {
	log := klog.FromContext(ctx)
	switch {
	case err == nil:
		log.V(4).Info("Executed action", "action", a.String())
	case result.Outcome == graph.Failed && c.queue.NumRequeues(s) == triesBeforeError:
		log.Error(err, "Garbage collector keeps failing to execute action, will retry", "action", a.String())
	default:
		log.V(4).Info("Failed to execute action, will retry", "action", a.String(), "reason", err.Error())
	}
}
