package job

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/controllers/pods"
)

// apiServer is an in-memory API server for the job "work" and its pods, with the
// validation of the real one, and a process whose caches lag behind. The process
// can crash at any write.
type apiServer struct {
	scheme *runtime.Scheme
	jobs   *resource.Kind
	now    time.Time

	mu      sync.Mutex
	version int
	named   map[string]int
	job     *batchv1.Job
	pods    map[string]*corev1.Pod

	// changes is the history. The caches have it up to seenJobs and seenPods, and
	// at least up to the writes of the process itself, ownJobs and ownPods.
	changes            []change
	seenJobs, seenPods int
	ownJobs, ownPods   int
	// behind is the number of changes that the cache of pods lacks, if random is nil.
	behind int
	// random, if set, advances the caches by random steps; else they are up to date.
	random *rand.Rand

	// crash is the number of writes until the process crashes, if not negative.
	crash int
	// fail returns the error of a write, and whether it is stored nevertheless.
	fail func(what string) (err error, happens bool)
	// wrote is called after each write, and validated after each one of a status.
	wrote     func(what string)
	validated func(now, old *batchv1.Job)
	invalid   []string

	process *process
}

// process is the state that a crash loses.
type process struct {
	dead    bool
	store   *store
	jobs    *reconciler
	orphans *orphans
}

// change is the state of one object after a write; both are nil for a job or
// pod that has gone.
type change struct {
	name string
	job  *batchv1.Job
	pod  *corev1.Pod
}

// newAPIServer returns an apiServer of kinds, which must include jobs.
func newAPIServer(kinds []*resource.Kind, scheme *runtime.Scheme) *apiServer {
	i := slices.IndexFunc(kinds, func(k *resource.Kind) bool { return k.Name == "jobs" })
	w := &apiServer{
		scheme: scheme, jobs: kinds[i], named: map[string]int{}, pods: map[string]*corev1.Pod{}, crash: -1,
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	w.restart()
	return w
}

// restart starts a new process with synced caches.
func (w *apiServer) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{store: newStore(func() time.Time { return w.now })}
	c := &memoryClient{apiServer: w, process: p}
	control := pods.Control{Client: c, Recorder: (*recorder)(w)}
	p.jobs = &reconciler{client: c, live: liveReader{w}, pods: control, kind: batchv1.SchemeGroupVersion.WithKind("Job"), store: p.store, metrics: newMetrics()}
	p.orphans = &orphans{client: c, live: liveReader{w}}
	w.process, w.crash = p, -1
	w.seenJobs, w.seenPods = len(w.changes), len(w.changes)
	w.ownJobs, w.ownPods = 0, 0
}

var errCrash = errors.New("the process has crashed")

// sync syncs the job once. It restarts a process that has crashed.
func (w *apiServer) sync() (time.Duration, error) {
	result, err := w.process.jobs.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "work"}})
	if w.process.dead {
		w.restart()
		return 0, errCrash
	}
	return result.RequeueAfter, err
}

// syncOrphans syncs all pods as orphans.
func (w *apiServer) syncOrphans() {
	requests := map[orphan]bool{}
	for _, pod := range w.pods {
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			requests[orphan{namespace: "ns", job: ref.Name, uid: ref.UID}] = true
		} else {
			requests[orphan{namespace: "ns", pod: pod.Name}] = true
		}
	}
	for r := range requests {
		// A request that fails is requeued.
		_, _ = w.process.orphans.Reconcile(context.Background(), r)
	}
	if w.process.dead {
		w.restart()
	}
}

// putJob stores a job.
func (w *apiServer) storeJob(job *batchv1.Job) {
	w.version++
	job.ResourceVersion = strconv.Itoa(w.version)
	w.job = job
	w.changes = append(w.changes, change{name: "work", job: job})
}

// putPod stores a pod, unless it is gone: deleted, without grace period and
// finalizers.
func (w *apiServer) storePod(pod *corev1.Pod) {
	w.version++
	pod.ResourceVersion = strconv.Itoa(w.version)
	if pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) == 0 && len(pod.Finalizers) == 0 {
		delete(w.pods, pod.Name)
		w.changes = append(w.changes, change{name: pod.Name})
		return
	}
	w.pods[pod.Name] = pod
	w.changes = append(w.changes, change{name: pod.Name, pod: pod})
}

// advanceCache advances a cache: to its own writes, and by a random step.
func (w *apiServer) advanceCache(seen *int, own int) int {
	all := len(w.changes)
	*seen = max(*seen, own)
	if w.random == nil {
		*seen = all
		if seen == &w.seenPods {
			*seen = max(own, all-w.behind)
		}
	} else if all > *seen && w.random.IntN(2) == 0 {
		*seen += w.random.IntN(all - *seen + 1)
	}
	return *seen
}

// cachedPods returns the pods in the cache of the process by name.
func (w *apiServer) cachedPods() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{}
	for _, ch := range w.changes[:w.advanceCache(&w.seenPods, w.ownPods)] {
		if ch.pod != nil {
			all[ch.name] = ch.pod
		} else {
			delete(all, ch.name)
		}
	}
	return all
}

// recorder implements record.EventRecorder.
type recorder apiServer

func (r *recorder) Event(_ runtime.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrote != nil && !r.process.dead {
		r.wrote(fmt.Sprintf("event %s %s: %s", kind, reason, message))
	}
}

func (r *recorder) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	r.Event(obj, kind, reason, fmt.Sprintf(format, args...))
}

func (r *recorder) AnnotatedEventf(obj runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Eventf(obj, kind, reason, format, args...)
}
