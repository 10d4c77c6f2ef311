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

// collector does what the graph wants done. It reads the metadata of all
// objects; it deletes dependents, removes owner references and the finalizers
// foregroundDeletion and orphan.
type collector struct {
	metadata metadata.Interface
	events   record.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[graph.Subject]

	mu    sync.Mutex
	graph *graph.Graph
	// resources are how the kinds that the graph knows are reached.
	resources map[schema.GroupKind]discovery.Resource
}

// patientTries is how often an action fails before it is told: some seconds.
const patientTries = 8

func newCollector(client metadata.Interface, events record.EventRecorder, c clock.WithTicker) *collector {
	return &collector{
		metadata:  client,
		events:    events,
		queue:     newQueue(c),
		graph:     graph.New(),
		resources: map[schema.GroupKind]discovery.Resource{},
	}
}

// run works until ctx is done and the workers have ended.
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

// change changes the graph, or asks it, and sees to what follows.
func (c *collector) change(how func(*graph.Graph)) {
	c.mu.Lock()
	how(c.graph)
	ready, told := c.graph.Ready(), c.tell(c.graph.Notices())
	c.mu.Unlock()
	for _, s := range ready {
		c.queue.Add(s)
	}
	for _, event := range told {
		c.events.Event(event.object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", event.message)
	}
}

// told is an event to be recorded.
type told struct {
	object  *corev1.ObjectReference
	message string
}

// tell puts notices into the words of Kubernetes.
func (c *collector) tell(notices []graph.Notice) []told {
	var events []told
	for _, n := range notices {
		o := n.Object
		events = append(events, told{
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

// work does what there is to do for one subject. It returns false at the end.
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
	again := graph.Settled
	c.change(func(g *graph.Graph) { again = g.Answer(s, a, result) })
	switch again {
	case graph.Settled:
		c.queue.Forget(s)
	case graph.Later:
		c.queue.AddRateLimited(s)
	}
	return true
}

var errNotServed = errors.New("the kind is not served")

// report logs what was done, and what keeps failing.
func (c *collector) report(ctx context.Context, s graph.Subject, a graph.Action, result graph.Result, err error) {
	log := klog.FromContext(ctx)
	switch {
	case err == nil:
		log.V(4).Info("Collecting garbage", "action", a.String())
	case result.Outcome == graph.Failed && c.queue.NumRequeues(s) == patientTries:
		log.Error(err, "The garbage collector keeps failing, and keeps trying", "action", a.String())
	default:
		log.V(4).Info("Collecting garbage did not work", "action", a.String(), "reason", err.Error())
	}
}
