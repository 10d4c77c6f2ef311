package status

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/svclet/source"
)

const (
	// slowRequest is after which time a request that is in flight does not delay those of
	// other pods any more. If the API server has answered no other since it began, the API
	// server counts as not available.
	slowRequest = 15 * time.Second
	// requestTimeout bounds one request. It is longer than the API server's own limit with its
	// admission webhooks, of 60 s by default (--request-timeout).
	requestTimeout = 65 * time.Second
)

// enqueue queues an entry for sync, after its request in flight if there is one.
func (m *Manager) enqueue(e *entry) {
	switch {
	case m.o.Core == nil:
		return
	case e.busy:
		e.again = true
		return
	}
	m.push(e)
	m.dispatch()
}

// dispatch starts as many requests as allowed: only one while the API server is
// not available, so that it is not overloaded when it recovers. Those of pods whose
// requests are slow have a limit of their own.
func (m *Manager) dispatch() {
	limit := m.o.InFlight
	if m.away.delay > 0 {
		limit = 1
	}
	for m.ctx != nil && m.away.timer == nil {
		at := slices.IndexFunc(m.queue, func(e *entry) bool { return *m.requests(e) < limit })
		if at < 0 {
			break
		}
		e := m.queue[at]
		m.queue = slices.Delete(m.queue, at, at+1)
		e.queued = false
		todo := e.next()
		if todo == nil {
			continue
		}
		e.busy = true
		*m.requests(e)++
		ctx, a := m.ctx, &attempt{entry: e, started: e.api, wanted: e.want, answers: m.away.answers}
		m.inFlight.Go(func() { m.do(ctx, a, todo) })
	}
	if len(m.queue) == 0 {
		m.queue = nil
	}
}

// requests returns the number of requests in flight that count like those of an entry.
func (m *Manager) requests(e *entry) *int {
	if e.slow {
		return &m.slow
	}
	return &m.busy
}

// attempt is one request of an entry.
type attempt struct {
	*entry
	// started and wanted are the input, which may change before the request begins.
	started *corev1.Pod
	wanted  *corev1.PodStatus
	// answers is how many the API server had given when the attempt began.
	answers int
	// late is true if it takes longer than slowRequest, over when it has ended.
	late, over bool
}

// request changes one pod in the API server and returns the result, or nil if the
// pod does not exist any more.
type request func(ctx context.Context, m *Manager) (*corev1.Pod, error)

// next returns the request that the pod needs, or nil.
func (e *entry) next() request {
	if e.api == nil {
		return nil
	}
	if e.want != nil && !e.settled {
		merged := merge(&e.api.Status, e.want, e.restarted)
		if !same(&e.api.Status, merged) && (e.written != e.want || !same(&e.api.Status, e.stored)) {
			return patchStatus(e.api, merged)
		}
		e.settled, e.written, e.stored = true, e.want, &e.api.Status
		e.since = time.Time{}
	}
	if e.finished && e.api.DeletionTimestamp != nil && podspec.IsTerminal(e.api.Status.Phase) && !source.IsMirror(e.api) {
		return deletePod(e.api)
	}
	return nil
}

// patchStatus patches what differs and leaves what other writers have set. The UID
// in the patch is its precondition. An older API server drops the fields that it does not
// know, and need not warn of them.
func patchStatus(pod *corev1.Pod, status *corev1.PodStatus) request {
	return func(ctx context.Context, m *Manager) (*corev1.Pod, error) {
		patch, err := patchOf(pod.UID, &pod.Status, status)
		if err != nil {
			return nil, err
		}
		klog.FromContext(ctx).V(4).Info("Patching pod status", "pod", klog.KObj(pod), "podUID", pod.UID, "patch", string(patch))
		written := &corev1.Pod{}
		err = m.o.Core.Patch(types.StrategicMergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
			Param("fieldValidation", metav1.FieldValidationIgnore).Body(patch).Do(ctx).Into(written)
		return written, err
	}
}

func deletePod(pod *corev1.Pod) request {
	return func(ctx context.Context, m *Manager) (*corev1.Pod, error) {
		err := m.o.Core.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
			Body(&metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}).
			Do(ctx).Error()
		if err == nil {
			klog.FromContext(ctx).V(3).Info("Deleted the terminated pod from the API server", "pod", klog.KObj(pod), "podUID", pod.UID)
		}
		return nil, err
	}
}

// do makes a request and processes its result.
func (m *Manager) do(ctx context.Context, a *attempt, todo request) {
	slow := m.o.Clock.AfterFunc(slowRequest, func() { m.yield(ctx, a) })
	defer slow.Stop()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := todo(limited, m)
	var existing *corev1.Pod
	if apierrors.IsConflict(err) {
		existing, err = m.resolveConflict(limited, a.started, err)
	}
	if apierrors.IsNotFound(err) {
		pod, err = nil, nil
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	e, again := a.entry, a.again
	*m.requests(e)--
	a.over, e.busy, e.again = true, false, false
	unavailable := err != nil && isUnavailable(err)
	switch {
	case ctx.Err() != nil:
	case unavailable && !a.late:
		m.postpone(ctx, err)
		m.push(e)
	case err == nil:
		m.answered(a)
		e.failures.reset()
		m.take(e, a.started, a.wanted, pod)
		m.push(e)
	default:
		if !unavailable {
			m.answered(a)
		}
		if existing != nil && e.api == a.started && newer(existing, a.started) {
			e.api = existing
		}
		if m.retry(ctx, e, err); again {
			m.push(e)
		}
	}
	m.dispatch()
}

// yield lets requests of other pods begin though one has no answer yet.
func (m *Manager) yield(ctx context.Context, a *attempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.over || ctx.Err() != nil {
		return
	}
	a.late = true
	if a.slow {
		return
	}
	m.busy--
	m.slow++
	a.slow = true
	if a.answers == m.away.answers {
		m.postpone(ctx, errors.New("no answer within "+slowRequest.String()))
	}
	m.dispatch()
}

// answered records that the API server is available, and whether the pod's requests are slow.
func (m *Manager) answered(a *attempt) {
	m.away.end()
	a.slow = a.late
}

// push adds an entry to the end of the queue unless it is there: after a failure that may be
// of this pod alone, those of others come first.
func (m *Manager) push(e *entry) {
	if !e.queued {
		e.queued = true
		m.queue = append(m.queue, e)
	}
}

// take records the pod in the API server after a request.
func (m *Manager) take(e *entry, started *corev1.Pod, wanted *corev1.PodStatus, pod *corev1.Pod) {
	if e.api == nil || e.api.UID != started.UID {
		// A newer state is known already.
		return
	}
	if pod == nil {
		m.lose(e)
		return
	}
	pod.ManagedFields = nil
	e.written, e.stored = wanted, &pod.Status
	if newer(pod, e.api) {
		e.api = pod
	}
	if e.want == wanted && !e.since.IsZero() {
		if m.o.Written != nil {
			m.o.Written(m.o.Clock.Since(e.since))
		}
		e.since = time.Time{}
	}
}

// newer reports whether a is a later state of the pod than b.
func newer(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err != nil || order > 0
}

// resolveConflict resolves a conflict. If another pod has taken the name, it returns
// NotFound; otherwise it returns the conflict and the current pod.
func (m *Manager) resolveConflict(ctx context.Context, pod *corev1.Pod, conflict error) (*corev1.Pod, error) {
	existing := &corev1.Pod{}
	err := m.o.Core.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Do(ctx).Into(existing)
	switch {
	case err != nil:
		return nil, err
	case existing.UID != pod.UID:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	existing.ManagedFields = nil
	return existing, conflict
}
