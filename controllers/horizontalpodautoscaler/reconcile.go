package horizontalpodautoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// reconciler reads autoscalers, pods, the scales of targets and the metrics APIs. It
// writes the number of replicas of targets, and it alone writes the status of
// autoscalers.
type reconciler struct {
	client   client.Client
	scales   scales
	metrics  *metrics
	recorder record.EventRecorder
	period   time.Duration
	settings decide.Settings
	now      func() time.Time
	targets  *targets
	// marksZero reports whether the condition ScaledToZero decides about targets without
	// replicas.
	marksZero bool
	// observes reports whether the status has the generation that was observed.
	observes bool
}

// changed passes the events that need a sync before its time: not updates of the
// status.
var changed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*autoscalingv2.HorizontalPodAutoscaler), e.ObjectNew.(*autoscalingv2.HorizontalPodAutoscaler)
	return before.UID != after.UID || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec)
}}

const belowLeast = "Current number of replicas below Spec.MinReplicas"

var errNoSelector = errors.New("selector is required")

// Reconcile syncs an autoscaler, and requeues it for the next sync.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := r.client.Get(ctx, req.NamespacedName, hpa); apierrors.IsNotFound(err) {
		if r.targets.forget(req.NamespacedName) {
			r.metrics.forget(req.Namespace)
		}
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	s := &syncing{reconciler: r, hpa: hpa.DeepCopy(), stored: hpa.Status, memory: r.targets.memory(hpa), now: r.now()}
	failure := s.run(ctx)
	if err := s.writeStatus(ctx); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if apierrors.IsConflict(failure) {
		return reconcile.Result{}, failure
	}
	if failure != nil {
		klog.FromContext(ctx).V(2).Info("Autoscaler has a problem, will retry", "horizontalPodAutoscaler", req.NamespacedName, "reason", failure.Error())
	}
	return reconcile.Result{RequeueAfter: r.period}, nil
}

// syncing is one sync of an autoscaler. hpa is a copy, whose status it changes; stored is the
// status that the API server has.
type syncing struct {
	*reconciler
	hpa    *autoscalingv2.HorizontalPodAutoscaler
	stored autoscalingv2.HorizontalPodAutoscalerStatus
	memory *decide.Memory
	now    time.Time
}

// run scales the target. The error says what could not be done; the status and events
// have it, too.
func (s *syncing) run(ctx context.Context) error {
	scale, err := s.scales.of(ctx, s.hpa)
	if err != nil {
		s.fail("FailedGetScale", err)
		s.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+err.Error())
		return fmt.Errorf("failed to query scale subresource for %s: %w", s.reference(), err)
	}
	s.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	s.memory.Start(scale.replicas, s.now)
	s.hpa.Status.CurrentReplicas, s.hpa.Status.CurrentMetrics, s.hpa.Status.ObservedGeneration = scale.replicas, nil, nil
	if s.observes {
		s.hpa.Status.ObservedGeneration = ptr.To(s.hpa.Generation)
	}

	least := ptr.Deref(s.hpa.Spec.MinReplicas, 1)
	desired, why := scale.replicas, ""
	var failure error
	switch {
	case scale.replicas == 0 && s.staysAtZero(least):
		s.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		s.unmarkZero()
	case scale.replicas > s.hpa.Spec.MaxReplicas:
		desired, why = s.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case scale.replicas < least && scale.replicas > 0:
		desired, why = least, belowLeast
	default:
		var chosen bool
		if desired, why, chosen, failure = s.measure(ctx, scale, least); !chosen {
			return failure
		}
		if scale.replicas == 0 && least > 0 { // whatever the limits of the behavior are
			desired, why = max(desired, least), cmp.Or(why, belowLeast)
		}
	}
	if desired != scale.replicas {
		if err := s.rescale(ctx, scale, desired, why); err != nil {
			return err
		}
	} else {
		s.resetZero(desired)
	}
	s.hpa.Status.DesiredReplicas = desired
	return failure
}

// measure returns the number of replicas by the metrics; false if they give none.
func (s *syncing) measure(ctx context.Context, scale *scale, least int32) (desired int32, why string, chosen bool, err error) {
	selector, err := scale.pods()
	if err != nil {
		s.fail("SelectorRequired", err)
		s.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector")
		return 0, "", false, err
	}
	var list corev1.PodList
	if err := s.client.List(ctx, &list, client.InNamespace(s.hpa.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, "", false, err
	}
	target := &decide.Target{Replicas: scale.replicas, Status: scale.status, Now: s.now, Behavior: s.hpa.Spec.Behavior, Settings: s.settings}
	for i := range list.Items {
		target.Pods = append(target.Pods, &list.Items[i])
	}
	if others := s.targets.selected(s.hpa, selector, target.Pods); len(others) > 0 {
		err := fmt.Errorf("pods by selector %s are controlled by multiple HPAs: [%s]", selector, strings.Join(others, " "))
		s.fail("AmbiguousSelector", err)
		s.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", err.Error())
		return 0, "", false, err
	}
	e := &evaluator{metrics: s.metrics, target: target, selector: selector, namespace: s.hpa.Namespace}
	var metrics []decide.Metric
	// Clients such as kubectl find the status of a metric by its position in the spec: that
	// of a metric that is not available is empty.
	s.hpa.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(s.hpa.Spec.Metrics))
	for i := range s.hpa.Spec.Metrics {
		m, status := e.evaluate(ctx, &s.hpa.Spec.Metrics[i])
		if m.Err != nil {
			s.fail(m.Failure, m.Err)
		} else {
			s.hpa.Status.CurrentMetrics[i] = status
		}
		metrics = append(metrics, m)
	}
	choice, failed, err := decide.Choose(metrics, scale.replicas)
	if choice == nil {
		if failed == nil {
			err = errors.New("the autoscaler has no metrics")
			failed = &decide.Metric{Failure: "InvalidMetricSourceType", Err: err}
		}
		s.fail("FailedComputeMetricsReplicas", err)
		s.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, failed.Failure, "the HPA was unable to compute the replica count: "+failed.Err.Error())
		return 0, "", false, err
	}
	s.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+choice.Name)
	switch {
	case choice.Replicas > scale.replicas:
		why = choice.Name + " above target"
	case choice.Replicas < scale.replicas:
		why = "All metrics below target"
	}
	return s.limit(scale, choice.Replicas, least), why, true, err
}

// limit returns a number of replicas within its limits, and says so in the conditions.
func (s *syncing) limit(scale *scale, proposed, least int32) int32 {
	limits := decide.Limits{Min: least, Max: s.hpa.Spec.MaxReplicas, Behavior: s.hpa.Spec.Behavior}
	l := s.memory.Limit(limits, s.settings.Downscale, scale.replicas, proposed, s.now)
	s.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, l.Able.Reason, l.Able.Message)
	limited := corev1.ConditionFalse
	if l.Bounded {
		limited = corev1.ConditionTrue
	}
	s.set(autoscalingv2.ScalingLimited, limited, l.Limit.Reason, l.Limit.Message)
	return l.Replicas
}

// rescale writes the number of replicas. The mark of a target that is scaled to zero is
// written before: a target without it would stay at zero.
func (s *syncing) rescale(ctx context.Context, scale *scale, desired int32, why string) error {
	if s.marksZero && desired == 0 {
		s.markZero(scale.replicas, desired)
		if err := s.writeStatus(ctx); err != nil {
			return err
		}
	}
	err := s.scales.set(ctx, scale, desired)
	switch {
	case apierrors.IsConflict(err): // another client has just scaled the target
		s.resetZero(scale.replicas)
		return err
	case err != nil:
		s.recorder.Eventf(s.hpa, corev1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %s", desired, why, err)
		s.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", "the HPA controller was unable to update the target scale: "+err.Error())
		return fmt.Errorf("failed to rescale %s: %w", s.reference(), err)
	}
	s.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", desired))
	s.recorder.Eventf(s.hpa, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", desired, why)
	s.memory.Scaled(s.hpa.Spec.Behavior, scale.replicas, desired, s.now)
	s.hpa.Status.LastScaleTime = &metav1.Time{Time: s.now}
	s.markZero(scale.replicas, desired)
	return nil
}

func (s *syncing) reference() string {
	return fmt.Sprintf("%s/%s/%s", s.hpa.Spec.ScaleTargetRef.Kind, s.hpa.Namespace, s.hpa.Spec.ScaleTargetRef.Name)
}

// fail records an event about a failure.
func (s *syncing) fail(reason string, err error) {
	s.recorder.Event(s.hpa, corev1.EventTypeWarning, reason, err.Error())
}

// set sets a condition of the status.
func (s *syncing) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	conditions := &s.hpa.Status.Conditions
	i := slices.IndexFunc(*conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		*conditions = append(*conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
		i = len(*conditions) - 1
	}
	c := &(*conditions)[i]
	if c.Status != status {
		c.Status, c.LastTransitionTime = status, metav1.NewTime(s.now)
	}
	c.Reason, c.Message = reason, message
}

// writeStatus writes the status if it has changed.
func (s *syncing) writeStatus(ctx context.Context) error {
	if apiequality.Semantic.DeepEqual(s.stored, s.hpa.Status) {
		return nil
	}
	if err := s.client.Status().Update(ctx, s.hpa); err != nil {
		return fmt.Errorf("update status of autoscaler %s: %w", klog.KObj(s.hpa), err)
	}
	s.stored = *s.hpa.Status.DeepCopy()
	return nil
}

// key is the name of an autoscaler.
func key(hpa *autoscalingv2.HorizontalPodAutoscaler) types.NamespacedName {
	return types.NamespacedName{Namespace: hpa.Namespace, Name: hpa.Name}
}

// matches reports whether a selector selects one of the pods.
func matches(selector labels.Selector, pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) })
}
