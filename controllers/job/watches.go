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
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/job/decide"
)

// watches map events to requests. They read the cache only.
type watches struct {
	cache client.Reader
	kind  schema.GroupVersionKind // of jobs
	store *store
}

type (
	jobQueue     = controller.Queue[reconcile.Request]
	orphanQueue  = controller.Queue[orphan]
	jobEvents    = handler.TypedFuncs[client.Object, reconcile.Request]
	orphanEvents = handler.TypedFuncs[client.Object, orphan]
)

// jobsBySelector indexes the jobs that may adopt a pod: by the value of the label
// that the API server has generated for their selector, or by "" for a manual
// selector.
func jobsBySelector() controller.Index {
	return controller.Index{Name: "spec.selector", Object: &batchv1.Job{}, Values: func(obj client.Object) []string {
		job := obj.(*batchv1.Job)
		if ptr.Deref(job.Spec.ManualSelector, false) {
			return []string{""}
		}
		return []string{string(job.UID)}
	}}
}

// jobs requests a sync of each job that was created, deleted or given a new spec,
// and a batched one of a job whose status has changed.
func (w watches) jobs() controller.Watch[reconcile.Request] {
	return controller.Watch[reconcile.Request]{Object: &batchv1.Job{}, Handler: jobEvents{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q jobQueue) { q.Add(request(e.Object)) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q jobQueue) { q.Add(request(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q jobQueue) {
			specChanged := e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() ||
				(e.ObjectNew.GetDeletionTimestamp() == nil) != (e.ObjectOld.GetDeletionTimestamp() == nil)
			if specChanged {
				q.Add(request(e.ObjectNew))
				return
			}
			w.enqueueBatched(q, client.ObjectKeyFromObject(e.ObjectNew))
		},
	}}
}

// pods requests a batched sync of the jobs that control a pod or may adopt it.
func (w watches) pods() controller.Watch[reconcile.Request] {
	return controller.Watch[reconcile.Request]{Object: &corev1.Pod{}, Handler: jobEvents{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q jobQueue) { w.enqueueJobs(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q jobQueue) { w.enqueueJobs(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q jobQueue) {
			before, now := metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew)
			if before != nil && (now == nil || now.UID != before.UID) {
				w.enqueueJobs(ctx, q, e.ObjectOld)
			}
			w.enqueueJobs(ctx, q, e.ObjectNew)
		},
	}}
}

// enqueueJobs requests a sync of the job that controls the pod or, if the pod has
// no controller, of those that may adopt it.
func (w watches) enqueueJobs(ctx context.Context, q jobQueue, pod client.Object) {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		if w.isJob(ref) {
			w.enqueueBatched(q, types.NamespacedName{Namespace: pod.GetNamespace(), Name: ref.Name})
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
			klog.FromContext(ctx).Error(err, "Failed to list jobs that may adopt pod", "pod", klog.KObj(pod))
			return
		}
		for i := range list.Items {
			job := &list.Items[i]
			if selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.GetLabels())) {
				w.enqueueBatched(q, client.ObjectKeyFromObject(job))
			}
		}
	}
}

func (w watches) enqueueBatched(q jobQueue, job types.NamespacedName) {
	q.AddAfter(reconcile.Request{NamespacedName: job}, w.store.syncDelay(job))
}

func request(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

func (w watches) isJob(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && ref.Kind == w.kind.Kind && gv.Group == w.kind.Group
}

// orphaningJobs requests the release of the pods of jobs that were deleted or have
// finished.
func (w watches) orphaningJobs() controller.Watch[orphan] {
	enqueue := func(ctx context.Context, q orphanQueue, job client.Object) {
		list := &corev1.PodList{}
		if err := w.cache.List(ctx, list, client.InNamespace(job.GetNamespace()), client.UnsafeDisableDeepCopy,
			client.MatchingFields{index.ByController(&corev1.Pod{}).Name: string(job.GetUID())}); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to list pods of finished job", "job", klog.KObj(job))
			return
		}
		for i := range list.Items {
			if decide.IsTracked(&list.Items[i]) {
				q.Add(orphan{namespace: job.GetNamespace(), job: job.GetName(), uid: job.GetUID()})
				return
			}
		}
	}
	return controller.Watch[orphan]{Object: &batchv1.Job{}, Handler: orphanEvents{
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q orphanQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q orphanQueue) {
			if decide.IsFinished(e.ObjectNew.(*batchv1.Job)) && !decide.IsFinished(e.ObjectOld.(*batchv1.Job)) {
				enqueue(ctx, q, e.ObjectNew)
			}
		},
	}}
}

// orphanedPods requests the release of pods that no job will count.
func (w watches) orphanedPods() controller.Watch[orphan] {
	enqueue := func(ctx context.Context, q orphanQueue, obj client.Object) {
		if pod := obj.(*corev1.Pod); !decide.IsTracked(pod) {
			return
		}
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil {
			// A job that adopts the pod now adds the finalizer again.
			q.AddAfter(orphan{namespace: obj.GetNamespace(), pod: obj.GetName()}, time.Second)
			return
		}
		if !w.isJob(ref) {
			return
		}
		o := orphan{namespace: obj.GetNamespace(), job: ref.Name, uid: ref.UID}
		job := &batchv1.Job{}
		if err := w.cache.Get(ctx, o.jobKey(), job, client.UnsafeDisableDeepCopy); err != nil || !o.countedBy(job) {
			q.Add(o)
		}
	}
	return controller.Watch[orphan]{Object: &corev1.Pod{}, Handler: orphanEvents{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q orphanQueue) { enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q orphanQueue) { enqueue(ctx, q, e.ObjectNew) },
	}}
}
