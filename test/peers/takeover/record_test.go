package takeover

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apis/podspec"
)

// record is what watches have shown: which objects were ever there, and what must never
// have been.
type record struct {
	mu         sync.Mutex
	pods       map[types.UID]*corev1.Pod
	sets       map[types.UID]int32 // replicas of the deployment's replica sets
	made       map[string]int      // objects that were ever created, by kind and owner
	ticks      map[string]int      // jobs of the cron job, by their scheduled time
	settled    bool                // whether the workloads have been complete once
	violations map[string]int
}

func newRecord() *record {
	return &record{pods: map[types.UID]*corev1.Pod{}, sets: map[types.UID]int32{}, made: map[string]int{}, ticks: map[string]int{}, violations: map[string]int{}}
}

// all returns the violations, each once, with their number.
func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, text := range slices.Sorted(maps.Keys(r.violations)) {
		all = append(all, fmt.Sprintf("%s (seen %d times)", text, r.violations[text]))
	}
	return all
}

// count returns how many objects of a kind and an owner were ever created.
func (r *record) count(kind, owner string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[kind+" of "+owner]
}

// watch starts to record the objects of a namespace.
func (r *record) watch(factory informers.SharedInformerFactory) error {
	owned := func(kind string) cache.ResourceEventHandlerFuncs {
		return cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { r.create(kind, obj.(metav1.Object)) }}
	}
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{factory.Apps().V1().ReplicaSets().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				r.create("ReplicaSet", obj.(metav1.Object))
				r.set(obj.(*appsv1.ReplicaSet))
			},
			UpdateFunc: func(_, obj any) { r.set(obj.(*appsv1.ReplicaSet)) },
		}},
		{factory.Apps().V1().ControllerRevisions().Informer(), owned("ControllerRevision")},
		{factory.Core().V1().PersistentVolumeClaims().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			r.add("PersistentVolumeClaim of " + obj.(metav1.Object).GetLabels()["app"])
		}}},
		{factory.Resource().V1().ResourceClaims().Informer(), owned("ResourceClaim")},
		{factory.Batch().V1().Jobs().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { r.job(obj.(*batchv1.Job)) }}},
		{factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				r.create("Pod", obj.(metav1.Object))
				r.pod(obj.(*corev1.Pod), false)
			},
			UpdateFunc: func(_, obj any) { r.pod(obj.(*corev1.Pod), false) },
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				r.pod(obj.(*corev1.Pod), true)
			},
		}},
	} {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return err
		}
	}
	return nil
}

func (r *record) create(kind string, object metav1.Object) {
	if owner := metav1.GetControllerOf(object); owner != nil {
		r.add(kind + " of " + owner.Name)
	}
}

func (r *record) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[what]++
}

// set records the replicas of a replica set, the sum of which a rollout limits. None is
// deleted, as the deployment keeps all.
func (r *record) set(s *appsv1.ReplicaSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets[s.UID] = *s.Spec.Replicas
	sum := int32(0)
	for _, replicas := range r.sets {
		sum += replicas
	}
	if sum > webReplicas+1 {
		r.violations[fmt.Sprintf("the replica sets of the deployment had %d replicas, and may have %d", sum, webReplicas+1)]++
	}
}

// job records the jobs of the cron job.
func (r *record) job(j *batchv1.Job) {
	at := j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if at == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ticks[at]++; r.ticks[at] > 1 {
		r.violations["the cron job ran twice for "+at]++
	}
}

// pod records a state of a pod, and checks what must hold at any time.
func (r *record) pod(pod *corev1.Pod, deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[pod.UID] = pod; deleted {
		delete(r.pods, pod.UID)
	}
	ready, unready := 0, 0
	daemons := map[string]int{}
	for _, p := range r.pods {
		isReady := podspec.Condition(&p.Status, corev1.PodReady) != nil && podspec.Condition(&p.Status, corev1.PodReady).Status == corev1.ConditionTrue
		present := p.DeletionTimestamp == nil
		switch p.Labels["app"] {
		case "web":
			if present && isReady {
				ready++
			}
		case "db":
			if !present || !isReady {
				unready++
			}
		case "agent":
			if present && p.Spec.NodeName != "" && !podspec.IsTerminal(p.Status.Phase) {
				daemons[p.Spec.NodeName]++
			}
		}
	}
	if !r.settled {
		return
	}
	if ready < webReplicas {
		r.violations[fmt.Sprintf("the deployment had %d ready pods, and must have %d", ready, webReplicas)]++
	}
	if unready > 1 {
		r.violations[fmt.Sprintf("the stateful set had %d pods that were not ready, and may have one", unready)]++
	}
	for node, n := range daemons {
		if n > 1 {
			r.violations[fmt.Sprintf("%s had %d pods of the daemon set", node, n)]++
		}
	}
}

// updated reports whether a rollout is complete: the counters of a workload.
func updated(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == webReplicas &&
		d.Status.Replicas == webReplicas && d.Status.AvailableReplicas == webReplicas
}
