package job

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// watches make requests of events. They only look into the cache.
type watches struct {
	cache  client.Reader
	kind   schema.GroupVersionKind // of jobs
	memory *memory
}

type (
	jobQueue    = workqueue.TypedRateLimitingInterface[reconcile.Request]
	strayQueue  = workqueue.TypedRateLimitingInterface[stray]
	jobEvents   = handler.TypedFuncs[client.Object, reconcile.Request]
	strayEvents = handler.TypedFuncs[client.Object, stray]
)

// jobsBySelector finds the jobs that may adopt a pod: by the value of the label
// that the API server has put into their selector, or by "" if a selector is the
// user's own.
func jobsBySelector() controller.Index {
	return controller.Index{Name: "spec.selector", Object: &batchv1.Job{}, Values: func(obj client.Object) []string {
		job := obj.(*batchv1.Job)
		if ptr.Deref(job.Spec.ManualSelector, false) {
			return []string{""}
		}
		return []string{string(job.UID)}
	}}
}

// jobs asks for a look at each job that is new, gone, or told to do something
// else, and later at one whose status has changed.
func (w watches) jobs() controller.Watch[reconcile.Request] {
	return controller.Watch[reconcile.Request]{Object: &batchv1.Job{}, Handler: jobEvents{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q jobQueue) { q.Add(request(e.Object)) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q jobQueue) { q.Add(request(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q jobQueue) {
			told := e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() ||
				(e.ObjectNew.GetDeletionTimestamp() == nil) != (e.ObjectOld.GetDeletionTimestamp() == nil)
			if told {
				q.Add(request(e.ObjectNew))
				return
			}
			w.later(q, client.ObjectKeyFromObject(e.ObjectNew))
		},
	}}
}

// pods asks for a look, soon, at the jobs that a pod concerns.
func (w watches) pods() controller.Watch[reconcile.Request] {
	return controller.Watch[reconcile.Request]{Object: &corev1.Pod{}, Handler: jobEvents{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q jobQueue) { w.ask(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q jobQueue) { w.ask(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q jobQueue) {
			before, now := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			if before != nil && (now == nil || now.UID != before.UID) {
				w.ask(ctx, q, e.ObjectOld)
			}
			w.ask(ctx, q, e.ObjectNew)
		},
	}}
}

// ask asks for a look at the job that controls the pod or, if nothing does, at
// those that may adopt it.
func (w watches) ask(ctx context.Context, q jobQueue, pod client.Object) {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		if w.isJob(ref) {
			w.later(q, types.NamespacedName{Namespace: pod.GetNamespace(), Name: ref.Name})
		}
		return
	}
	selected := []string{""}
	if uid := pod.GetLabels()[batchv1.ControllerUidLabel]; uid != "" {
		selected = append(selected, uid)
	}
	for _, value := range selected {
		list := &batchv1.JobList{}
		if err := w.cache.List(ctx, list, client.InNamespace(pod.GetNamespace()), client.UnsafeDisableDeepCopy,
			client.MatchingFields{jobsBySelector().Name: value}); err != nil {
			klog.FromContext(ctx).Error(err, "Jobs that may adopt a pod are not known", "pod", klog.KObj(pod))
			return
		}
		for i := range list.Items {
			job := &list.Items[i]
			if selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.GetLabels())) {
				w.later(q, client.ObjectKeyFromObject(job))
			}
		}
	}
}

func (w watches) later(q jobQueue, job types.NamespacedName) {
	q.AddAfter(reconcile.Request{NamespacedName: job}, w.memory.wait(job))
}

func request(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

func (w watches) isJob(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && ref.Kind == w.kind.Kind && gv.Group == w.kind.Group
}

// strayJobs looks for jobs that leave pods behind: they are gone or finished.
func (w watches) strayJobs() controller.Watch[stray] {
	ask := func(ctx context.Context, q strayQueue, job client.Object) {
		list := &corev1.PodList{}
		if err := w.cache.List(ctx, list, client.InNamespace(job.GetNamespace()), client.UnsafeDisableDeepCopy,
			client.MatchingFields{index.ByController(&corev1.Pod{}).Name: string(job.GetUID())}); err != nil {
			klog.FromContext(ctx).Error(err, "The pods of a job that ended are not known", "job", klog.KObj(job))
			return
		}
		for i := range list.Items {
			if isTracked(&list.Items[i]) {
				q.Add(stray{namespace: job.GetNamespace(), job: job.GetName(), uid: job.GetUID()})
				return
			}
		}
	}
	return controller.Watch[stray]{Object: &batchv1.Job{}, Handler: strayEvents{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q strayQueue) { ask(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q strayQueue) {
			if isFinished(e.ObjectNew.(*batchv1.Job)) && !isFinished(e.ObjectOld.(*batchv1.Job)) {
				ask(ctx, q, e.ObjectNew)
			}
		},
	}}
}

// strayPods looks for pods that are left behind.
func (w watches) strayPods() controller.Watch[stray] {
	ask := func(ctx context.Context, q strayQueue, obj client.Object) {
		if pod := obj.(*corev1.Pod); !isTracked(pod) {
			return
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil {
			// Who adopts the pod in this moment gives it the finalizer again.
			q.AddAfter(stray{namespace: obj.GetNamespace(), pod: obj.GetName()}, time.Second)
			return
		}
		if !w.isJob(ref) {
			return
		}
		s := stray{namespace: obj.GetNamespace(), job: ref.Name, uid: ref.UID}
		job := &batchv1.Job{}
		if err := w.cache.Get(ctx, s.jobKey(), job, client.UnsafeDisableDeepCopy); err != nil || !s.wanted(job) {
			q.Add(s)
		}
	}
	return controller.Watch[stray]{Object: &corev1.Pod{}, Handler: strayEvents{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q strayQueue) { ask(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q strayQueue) { ask(ctx, q, e.ObjectNew) },
	}}
}
