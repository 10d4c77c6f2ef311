package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// world is an in-memory API server for the job "work" and its pods, with the
// validation of the real one, and a process whose caches lag behind. The process
// can crash at any write.
type world struct {
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

// newWorld returns a world of kinds, which must include jobs.
func newWorld(kinds []*resource.Kind, scheme *runtime.Scheme) *world {
	i := slices.IndexFunc(kinds, func(k *resource.Kind) bool { return k.Name == "jobs" })
	w := &world{
		scheme: scheme, jobs: kinds[i], named: map[string]int{}, pods: map[string]*corev1.Pod{}, crash: -1,
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	w.restart()
	return w
}

// restart starts a new process with synced caches.
func (w *world) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{store: newStore(func() time.Time { return w.now })}
	c := &memoryClient{world: w, process: p}
	control := pods.Control{Client: c, Recorder: (*recorder)(w)}
	p.jobs = &reconciler{client: c, live: liveReader{w}, pods: control, kind: batchv1.SchemeGroupVersion.WithKind("Job"), store: p.store}
	p.orphans = &orphans{client: c, live: liveReader{w}}
	w.process, w.crash = p, -1
	w.seenJobs, w.seenPods = len(w.changes), len(w.changes)
	w.ownJobs, w.ownPods = 0, 0
}

var errCrash = errors.New("the process has crashed")

// sync syncs the job once. It restarts a process that has crashed.
func (w *world) sync() (time.Duration, error) {
	result, err := w.process.jobs.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "work"}})
	if w.process.dead {
		w.restart()
		return 0, errCrash
	}
	return result.RequeueAfter, err
}

// syncOrphans syncs all pods as orphans.
func (w *world) syncOrphans() {
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

// What users and nodes do.

// setJob creates the job, or changes its spec.
func (w *world) setJob(change func(*batchv1.JobSpec)) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "work", UID: "job", CreationTimestamp: metav1.NewTime(w.now)}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "work"}}}
	if w.job != nil {
		job = w.job.DeepCopy()
	}
	change(&job.Spec)
	if w.job == nil {
		w.jobs.PrepareCreate(context.Background(), job)
	}
	w.jobs.Default(job)
	var errs []string
	for _, err := range w.jobs.Validate(job) {
		errs = append(errs, err.Error())
	}
	if len(errs) == 0 {
		w.putJob(job)
	}
	return errs
}

// touch writes the job without a change.
func (w *world) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.job != nil {
		w.putJob(w.job.DeepCopy())
	}
}

func (w *world) deleteJob(finalizers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.job.DeepCopy()
	job.Finalizers, job.DeletionTimestamp = finalizers, ptr.To(metav1.NewTime(w.now))
	if len(finalizers) > 0 {
		w.putJob(job)
		return
	}
	w.job = nil
	w.changes = append(w.changes, change{name: "work"})
}

// update changes a pod like its node.
func (w *world) update(name string, do func(pod *corev1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pods[name].DeepCopy()
	do(pod)
	w.putPod(pod)
}

func start(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp}}
}

func (w *world) end(name string, code int32) {
	w.update(name, func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions = "node", corev1.PodSucceeded, nil
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.now)},
		}}}
	})
}

// deletePod is a graceful deletion; endPod is the end of its grace period.
func (w *world) deletePod(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terminate(w.pods[name].DeepCopy())
}

func (w *world) terminate(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	grace := int64(30)
	if pod.Spec.NodeName == "" || pods.IsTerminal(pod) {
		grace = 0
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(w.now.Add(time.Duration(grace)*time.Second))), &grace
	w.putPod(pod)
}

func (w *world) endPod(name string, code int32) {
	if pod := w.pods[name]; !pods.IsTerminal(pod) {
		w.end(name, code)
	}
	w.update(name, func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = ptr.To[int64](0) })
}

// What is stored.

func (w *world) putJob(job *batchv1.Job) {
	w.version++
	job.ResourceVersion = strconv.Itoa(w.version)
	w.job = job
	w.changes = append(w.changes, change{name: "work", job: job})
}

func (w *world) putPod(pod *corev1.Pod) {
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

// memoryClient is the client of a process: it reads from the caches, which have at
// least the writes of the process, and fails once the process has crashed.
type memoryClient struct {
	client.Client
	world   *world
	process *process
}

// write calls do, unless the process has crashed or the write fails.
func (c *memoryClient) write(what string, own *int, do func() error) error {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.process.dead || w.crash == 0 {
		c.process.dead = true
		return errCrash
	}
	w.crash--
	var err error
	if w.fail != nil {
		var happens bool
		if err, happens = w.fail(what); !happens {
			return err
		}
	}
	if denied := do(); denied != nil {
		return denied
	}
	if w.wrote != nil {
		w.wrote(what)
	}
	if err == nil {
		*own = len(w.changes)
	}
	return err
}

// see advances a cache: to its own writes, and by a random step.
func (w *world) see(seen *int, own int) int {
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

func (c *memoryClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	switch obj := obj.(type) {
	case *batchv1.Job:
		for _, ch := range slices.Backward(w.changes[:w.see(&w.seenJobs, w.ownJobs)]) {
			if ch.name == key.Name && ch.job != nil {
				ch.job.DeepCopyInto(obj)
				return nil
			} else if ch.name == key.Name {
				break
			}
		}
	case *corev1.Pod:
		if pod := w.cachedPods()[key.Name]; pod != nil {
			pod.DeepCopyInto(obj)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, key.Name)
}

func (w *world) cachedPods() map[string]*corev1.Pod {
	all := map[string]*corev1.Pod{}
	for _, ch := range w.changes[:w.see(&w.seenPods, w.ownPods)] {
		if ch.pod != nil {
			all[ch.name] = ch.pod
		} else {
			delete(all, ch.name)
		}
	}
	return all
}

func (c *memoryClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	options := (&client.ListOptions{}).ApplyOptions(opts)
	wanted, _ := options.FieldSelector.RequiresExactMatch(index.ByController(&corev1.Pod{}).Name)
	for _, pod := range w.cachedPods() {
		if slices.Contains(index.ByController(&corev1.Pod{}).Values(pod), wanted) {
			list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, *pod)
		}
	}
	slices.SortFunc(list.(*corev1.PodList).Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (c *memoryClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	w, pod := c.world, obj.(*corev1.Pod)
	return c.write("create", &w.ownPods, func() error {
		pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, w.named[pod.GenerateName])
		w.named[pod.GenerateName]++
		pod.UID, pod.CreationTimestamp, pod.Status.Phase = types.UID(pod.Name), metav1.NewTime(w.now), corev1.PodPending
		w.putPod(pod.DeepCopy())
		return nil
	})
}

func (c *memoryClient) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	w := c.world
	return c.write("delete "+obj.GetName(), &w.ownPods, func() error {
		pod := w.pods[obj.GetName()]
		if pod == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, obj.GetName())
		}
		w.terminate(pod.DeepCopy())
		return nil
	})
}

func (c *memoryClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	w := c.world
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	what := "patch"
	switch text := string(data); {
	case strings.Contains(text, `"remove"`):
		what = "untrack"
	case strings.Contains(text, `"$patch":"delete"`):
		what = "release"
	case strings.Contains(text, `"ownerReferences"`):
		what = "adopt"
	case strings.Contains(text, `"finalizers"`):
		what = "track"
	}
	return c.write(what+" "+obj.GetName(), &w.ownPods, func() error {
		old := w.pods[obj.GetName()]
		if old == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, obj.GetName())
		}
		pod, err := patched(old, patch.Type(), data)
		if err != nil {
			return err
		}
		if pod.ResourceVersion != old.ResourceVersion {
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, obj.GetName(), errors.New("changed"))
		}
		w.putPod(pod)
		return nil
	})
}

func patched(pod *corev1.Pod, kind types.PatchType, data []byte) (*corev1.Pod, error) {
	old, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var merged []byte
	switch kind {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, err
		}
		if merged, err = operations.Apply(old); err != nil {
			return nil, apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
	case types.MergePatchType:
		merged, err = jsonpatch.MergePatch(old, data)
	default:
		merged, err = strategicpatch.StrategicMergePatch(old, data, &corev1.Pod{})
	}
	if err != nil {
		return nil, err
	}
	updated := &corev1.Pod{}
	return updated, json.Unmarshal(merged, updated)
}

func (c *memoryClient) Status() client.SubResourceWriter { return statusWriter{c: c} }

type statusWriter struct {
	client.SubResourceWriter
	c *memoryClient
}

func (s statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	w, job := s.c.world, obj.(*batchv1.Job)
	return s.c.write("status", &w.ownJobs, func() error {
		if w.job == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "jobs"}, job.Name)
		}
		if job.ResourceVersion != w.job.ResourceVersion {
			return apierrors.NewConflict(schema.GroupResource{Resource: "jobs"}, job.Name, errors.New("changed"))
		}
		updated := w.job.DeepCopy()
		job.Status.DeepCopyInto(&updated.Status)
		for _, err := range w.jobs.ValidateStatus(updated, w.job) {
			w.invalid = append(w.invalid, err.Error())
		}
		if len(w.invalid) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, job.Name, nil)
		}
		if w.validated != nil {
			w.validated(updated, w.job)
		}
		w.putJob(updated)
		updated.DeepCopyInto(job)
		return nil
	})
}

func (c *memoryClient) Scheme() *runtime.Scheme { return c.world.scheme }

func (c *memoryClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.world.scheme)
}

// liveReader reads what is stored.
type liveReader struct{ w *world }

func (l liveReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	switch obj := obj.(type) {
	case *batchv1.Job:
		if l.w.job != nil {
			l.w.job.DeepCopyInto(obj)
			return nil
		}
	case *corev1.Pod:
		if pod := l.w.pods[key.Name]; pod != nil {
			pod.DeepCopyInto(obj)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (l liveReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for _, pod := range l.w.pods {
		list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, *pod)
	}
	return nil
}

// recorder implements record.EventRecorder.
type recorder world

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
