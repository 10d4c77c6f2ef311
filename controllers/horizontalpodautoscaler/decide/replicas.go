package decide

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"svc.dev/svc/apis/podspec"
)

// Settings are those of the controller's flags.
type Settings struct {
	// Tolerance is how far the ratio of usage and target may be from 1 without a
	// change, unless the autoscaler has a tolerance of its own.
	Tolerance float64
	// CPUInitialization is how long after its start the processor usage of a pod
	// counts only while it is ready, and InitialReadiness how long after its start an
	// unready pod counts as not ready for the first time.
	CPUInitialization, InitialReadiness time.Duration
	// Downscale is the stabilization window of scaling down without a behavior.
	Downscale time.Duration
}

// Sample is the metric of a pod, in thousandths.
type Sample struct {
	Value     int64
	Timestamp time.Time
	Window    time.Duration
}

// Target is the state of a target.
type Target struct {
	// Replicas is the number that its scale specifies, Status the one that exists.
	Replicas, Status int32
	// Pods are those that its selector selects.
	Pods []*corev1.Pod
	Now  time.Time
	// Behavior is that of the autoscaler, nil if it has none.
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
	Settings
}

// Proposal is a number of replicas by one metric, with the usage that it follows from:
// the average, or the value, in thousandths, and for a utilization the percentage.
type Proposal struct {
	Replicas    int32
	Usage       int64
	Utilization int32
}

var (
	errNoPods    = errors.New("no pods returned by selector while calculating replica count")
	errNoMetrics = errors.New("did not receive metrics for targeted pods (pods might be unready)")
	errUnmatched = errors.New("no metrics returned matched known pods")
)

// Resource returns the proposal for a utilization of a resource, in percent of the
// requests of a pod or all of its containers, or of the container with the name.
func Resource(t *Target, samples map[string]Sample, resource corev1.ResourceName, container string, utilization int32) (Proposal, error) {
	if len(t.Pods) == 0 {
		return Proposal{}, errNoPods
	}
	groups := group(t, samples, resource)
	if len(groups.usage) == 0 {
		return Proposal{}, errNoMetrics
	}
	requests, err := requestsOf(t.Pods, resource, container)
	if err != nil {
		return Proposal{}, err
	}
	ratio := func(usage map[string]int64) (float64, Proposal, error) {
		var used, requested, n int64
		for pod, value := range usage {
			if request, ok := requests[pod]; ok {
				used, requested, n = used+value, requested+request, n+1
			}
		}
		if requested == 0 {
			return 0, Proposal{}, errUnmatched
		}
		percent := int32(used * 100 / requested)
		return float64(percent) / float64(utilization), Proposal{Usage: used / n, Utilization: percent}, nil
	}
	// A missing pod counts with its whole request if others use too little.
	fallback := int64(max(100, utilization))
	return propose(t, groups, ratio, func(pod string) int64 { return requests[pod] * fallback / 100 })
}

// PerPod returns the proposal for an average value of all pods, of a resource or, with
// an empty one, of another metric.
func PerPod(t *Target, samples map[string]Sample, resource corev1.ResourceName, average int64) (Proposal, error) {
	if len(t.Pods) == 0 {
		return Proposal{}, errNoPods
	}
	groups := group(t, samples, resource)
	if len(groups.usage) == 0 {
		return Proposal{}, errNoMetrics
	}
	ratio := func(usage map[string]int64) (float64, Proposal, error) {
		var total int64
		for _, value := range usage {
			total += value
		}
		mean := total / int64(len(usage))
		return float64(mean) / float64(average), Proposal{Usage: mean}, nil
	}
	return propose(t, groups, ratio, func(string) int64 { return average })
}

// propose returns a proposal by the ratio of usage and target. Pods without a metric
// count as using nothing if it says to scale up, and as fallback says if it says to
// scale down; pods that are not ready as using nothing if it says to scale up. If that
// reverses the direction, nothing changes.
func propose(t *Target, g groups, ratio func(map[string]int64) (float64, Proposal, error), fallback func(pod string) int64) (Proposal, error) {
	before, p, err := ratio(g.usage)
	if err != nil {
		return p, err
	}
	up := before > 1
	if len(g.missing) == 0 && (!up || len(g.unready) == 0) {
		p.Replicas = t.Replicas
		if !t.tolerates(before) {
			p.Replicas = ceil(before * float64(g.ready))
		}
		return p, nil
	}
	switch {
	case before < 1:
		for _, pod := range g.missing {
			g.usage[pod] = fallback(pod)
		}
	case up:
		for _, pod := range slices.Concat(g.missing, g.unready) {
			g.usage[pod] = 0
		}
	}
	after, _, err := ratio(g.usage)
	if err != nil {
		return p, err
	}
	replicas := ceil(after * float64(len(g.usage)))
	reversed := before < 1 && after > 1 || up && after < 1
	wrong := after < 1 && replicas > t.Replicas || after > 1 && replicas < t.Replicas
	if t.tolerates(after) || reversed || wrong {
		replicas = t.Replicas
	}
	p.Replicas = replicas // the usage is what was measured, not what is assumed
	return p, nil
}

// tolerates reports whether the ratio of usage and target is so near to 1 that nothing
// changes. The behavior may have a tolerance for each direction (KEP-4951).
func (t *Target) tolerates(ratio float64) bool {
	down, up := t.Tolerance, t.Tolerance
	if b := t.Behavior; b != nil {
		down, up = toleranceOf(b.ScaleDown, down), toleranceOf(b.ScaleUp, up)
	}
	return 1-down <= ratio && ratio <= 1+up
}

func toleranceOf(rules *autoscalingv2.HPAScalingRules, otherwise float64) float64 {
	if rules == nil || rules.Tolerance == nil {
		return otherwise
	}
	return rules.Tolerance.AsApproximateFloat64()
}

func ceil(n float64) int32 {
	if n >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int32(math.Ceil(n))
}

// Value returns the proposal for a value of an object or an external metric, which the
// pods share.
func Value(t *Target, usage, target int64) (Proposal, error) {
	ratio := float64(usage) / float64(target)
	p := Proposal{Replicas: t.Replicas, Usage: usage}
	switch {
	case t.Replicas == 0:
		p.Replicas = ceil(ratio)
	case t.tolerates(ratio):
	case len(t.Pods) == 0:
		return p, errNoPods
	default:
		ready := 0
		for _, pod := range t.Pods {
			if pod.Status.Phase == corev1.PodRunning && podspec.IsConditionTrue(&pod.Status, corev1.PodReady) {
				ready++
			}
		}
		p.Replicas = ceil(ratio * float64(ready))
	}
	return p, nil
}

// AverageValue returns the proposal for such a value divided by the number of pods.
func AverageValue(t *Target, usage, average int64) Proposal {
	p := Proposal{Replicas: t.Status}
	if ratio := float64(usage) / (float64(average) * float64(t.Status)); !t.tolerates(ratio) {
		p.Replicas = ceil(float64(usage) / float64(average))
	}
	if t.Status > 0 {
		p.Usage = int64(math.Ceil(float64(usage) / float64(t.Status)))
	}
	return p
}

// groups are the pods of a target by whether their metrics count.
type groups struct {
	ready            int
	unready, missing []string
	// usage is the metric of the pods that are ready.
	usage map[string]int64
}

// group returns the pods by whether their metrics count. Those that are being deleted
// or have failed are in no group.
func group(t *Target, samples map[string]Sample, resource corev1.ResourceName) groups {
	g := groups{usage: map[string]int64{}}
	for _, pod := range t.Pods {
		sample, found := samples[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case pod.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, pod.Name)
		case !found:
			g.missing = append(g.missing, pod.Name)
		case resource == corev1.ResourceCPU && t.starting(pod, sample):
			g.unready = append(g.unready, pod.Name)
		default:
			g.ready++
			g.usage[pod.Name] = sample.Value
		}
	}
	return g
}

// starting reports whether the processor usage of a pod is that of its start: within
// the initialization period, if it is not ready, or was not for the whole window of
// the sample; after it, if the pod has never been ready.
func (t *Target) starting(pod *corev1.Pod, sample Sample) bool {
	ready := podspec.Condition(&pod.Status, corev1.PodReady)
	if ready == nil || pod.Status.StartTime == nil {
		return true
	}
	started := pod.Status.StartTime.Time
	unready := ready.Status == corev1.ConditionFalse
	if started.Add(t.CPUInitialization).After(t.Now) {
		return unready || sample.Timestamp.Before(ready.LastTransitionTime.Add(sample.Window))
	}
	return unready && started.Add(t.InitialReadiness).After(ready.LastTransitionTime.Time)
}

// requestsOf returns the requests of pods in thousandths, of all containers or the one
// with the name. Requests of a pod as a whole are used in place of those of all
// containers (KEP-2837).
func requestsOf(pods []*corev1.Pod, resource corev1.ResourceName, container string) (map[string]int64, error) {
	requests := make(map[string]int64, len(pods))
	for _, pod := range pods {
		of := containerRequests
		if container == "" && resourcehelper.IsPodLevelRequestsSet(pod) {
			of = podRequests
		}
		request, err := of(pod, resource, container)
		if err != nil {
			return nil, err
		}
		requests[pod.Name] = request
	}
	return requests, nil
}

// podRequests returns the requests of a pod as a whole: a resource that has none there
// has those of the containers.
func podRequests(pod *corev1.Pod, resource corev1.ResourceName, _ string) (int64, error) {
	request, ok := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[resource]
	if !ok {
		return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", resource, pod.Name)
	}
	return request.MilliValue(), nil
}

func containerRequests(pod *corev1.Pod, resource corev1.ResourceName, container string) (int64, error) {
	var sum int64
	for c := range running(pod) {
		if container != "" && c.Name != container {
			continue
		}
		request, ok := c.Resources.Requests[resource]
		if !ok {
			return 0, fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, pod.Name)
		}
		sum += request.MilliValue()
	}
	return sum, nil
}

// running returns the containers of a pod that run as long as it does.
func running(pod *corev1.Pod) func(yield func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
	}
}
