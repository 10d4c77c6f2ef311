package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/controllers/index"
)

// memoryClient is the client of a process: it reads from the caches, which have at
// least the writes of the process, and fails once the process has crashed.
type memoryClient struct {
	client.Client
	apiServer *apiServer
	process   *process
}

// write calls do, unless the process has crashed or the write fails.
func (c *memoryClient) write(what string, own *int, do func() error) error {
	w := c.apiServer
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

func (c *memoryClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	w := c.apiServer
	w.mu.Lock()
	defer w.mu.Unlock()
	switch obj := obj.(type) {
	case *batchv1.Job:
		for _, ch := range slices.Backward(w.changes[:w.advanceCache(&w.seenJobs, w.ownJobs)]) {
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

func (c *memoryClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	w := c.apiServer
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
	w, pod := c.apiServer, obj.(*corev1.Pod)
	return c.write("create", &w.ownPods, func() error {
		pod.Name = fmt.Sprintf("%s%d", pod.GenerateName, w.named[pod.GenerateName])
		w.named[pod.GenerateName]++
		pod.UID, pod.CreationTimestamp, pod.Status.Phase = types.UID(pod.Name), metav1.NewTime(w.now), corev1.PodPending
		w.storePod(pod.DeepCopy())
		return nil
	})
}

func (c *memoryClient) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	w := c.apiServer
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
	w := c.apiServer
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
		w.storePod(pod)
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
	w, job := s.c.apiServer, obj.(*batchv1.Job)
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
		w.storeJob(updated)
		updated.DeepCopyInto(job)
		return nil
	})
}

func (c *memoryClient) Scheme() *runtime.Scheme { return c.apiServer.scheme }

func (c *memoryClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.apiServer.scheme)
}

// liveReader reads what is stored.
type liveReader struct{ w *apiServer }

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
