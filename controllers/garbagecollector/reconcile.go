package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

// reconciler executes the graph's actions. It reads the metadata of all objects; it
// deletes dependents, and removes owner references and the finalizers
// foregroundDeletion and orphan.
type reconciler struct {
	metadata metadata.Interface
	events   record.EventRecorder
	// trigger has the subjects that are ready.
	trigger *controller.Trigger[graph.Subject]

	mu    sync.Mutex
	graph *graph.Graph
	// resources are the served resources of the kinds in the graph.
	resources map[schema.GroupKind]discovery.Resource
}

// triesBeforeError is the number of failures after which an action is logged as an
// error: some seconds.
const triesBeforeError = 8

func newReconciler(client metadata.Interface, events record.EventRecorder) *reconciler {
	return &reconciler{
		metadata:  client,
		events:    events,
		trigger:   &controller.Trigger[graph.Subject]{},
		graph:     graph.New(),
		resources: map[schema.GroupKind]discovery.Resource{},
	}
}

// Reconcile executes the action of a subject, and the next one if that is to be
// decided again at once.
func (r *reconciler) Reconcile(ctx context.Context, s graph.Subject) (reconcile.Result, error) {
	requeue := graph.RequeueNow
	for requeue == graph.RequeueNow && ctx.Err() == nil {
		requeue = r.sync(ctx, s)
	}
	// Failures are logged by sync: most of them end by themselves.
	return reconcile.Result{Requeue: requeue == graph.RequeueWithBackoff}, nil //nolint:staticcheck // has a backoff and reports no error
}

// sync executes the action of a subject.
func (r *reconciler) sync(ctx context.Context, s graph.Subject) graph.Requeue {
	var a graph.Action
	var target discovery.Resource
	var served bool
	r.change(func(g *graph.Graph) {
		a = g.Next(s)
		target, served = r.resources[a.Object.Kind]
	})
	if a.Verb == graph.Nothing {
		return graph.NoRequeue
	}
	result, err := graph.Result{}, errNotServed
	if served {
		result, err = perform(ctx, r.metadata, target, a)
	}
	if ctx.Err() != nil {
		return graph.NoRequeue
	}
	r.report(ctx, s, a, result, err)
	requeue := graph.NoRequeue
	r.change(func(g *graph.Graph) { requeue = g.Complete(s, a, result) })
	return requeue
}

// change calls how with the graph, and then enqueues the ready subjects and records
// the events.
func (r *reconciler) change(how func(*graph.Graph)) {
	r.mu.Lock()
	how(r.graph)
	ready, events := r.graph.Ready(), r.eventsFor(r.graph.Notices())
	r.mu.Unlock()
	r.trigger.Enqueue(ready...)
	for _, event := range events {
		r.events.Event(event.object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", event.message)
	}
}

// objectEvent is an event to record.
type objectEvent struct {
	object  *corev1.ObjectReference
	message string
}

// eventsFor returns the events for notices, with Kubernetes' messages.
func (r *reconciler) eventsFor(notices []graph.Notice) []objectEvent {
	var events []objectEvent
	for _, n := range notices {
		o := n.Object
		events = append(events, objectEvent{
			object: &corev1.ObjectReference{APIVersion: r.apiVersion(o.Kind), Kind: o.Kind.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID},
			message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				r.apiVersion(n.Owner.Kind), n.Owner.Kind.Kind, n.Owner.Namespace, n.Owner.Name, n.Owner.UID, n.Owner.Namespace),
		})
	}
	return events
}

func (r *reconciler) apiVersion(kind schema.GroupKind) string {
	if resource, ok := r.resources[kind]; ok {
		return resource.GroupVersion().String()
	}
	return kind.Group
}

var errNotServed = errors.New("the kind is not served")

// report logs the result of an action, and as an error one that keeps failing.
func (r *reconciler) report(ctx context.Context, s graph.Subject, a graph.Action, result graph.Result, err error) {
	log := klog.FromContext(ctx)
	switch {
	case err == nil:
		log.V(4).Info("Executed action", "action", a.String())
	case result.Outcome == graph.Failed && r.trigger.Failures(s) == triesBeforeError:
		log.Error(err, "Garbage collector keeps failing to execute action, will retry", "action", a.String())
	default:
		log.V(4).Info("Failed to execute action, will retry", "action", a.String(), "reason", err.Error())
	}
}

// perform executes an action and returns its result. The error explains an outcome
// other than success.
func perform(ctx context.Context, client metadata.Interface, r discovery.Resource, a graph.Action) (graph.Result, error) {
	var objects metadata.ResourceInterface = client.Resource(r.GroupVersionResource)
	if r.Namespaced {
		objects = client.Resource(r.GroupVersionResource).Namespace(a.Object.Namespace)
	}
	name := a.Object.Name
	switch a.Verb {
	case graph.LookUp:
		return outcome(name)(objects.Get(ctx, name, metav1.GetOptions{}))
	case graph.Delete:
		err := objects.Delete(ctx, name, deleteOptions(a))
		if err == nil {
			return graph.Result{Outcome: graph.Done}, nil
		}
		return failure(name, err), err
	}
	patch, err := json.Marshal(patchFor(a))
	if err != nil {
		return graph.Result{}, fmt.Errorf("patch to %s: %w", a, err)
	}
	return outcome(name)(objects.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}))
}
