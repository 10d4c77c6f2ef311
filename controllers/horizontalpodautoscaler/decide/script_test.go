package decide

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/golden"
)

// TestScripts runs the scripts of testdata. The commands:
//
//	target REPLICAS [STATUS]         the scale; STATUS is REPLICAS
//	pod NAME [request=QUANTITY] [whole=RESOURCE:QUANTITY] [used=QUANTITY] [phase=P] [deleting] [started=AGO] [ready=AGO|unready=AGO] [sampled=AGO]
//	                                 the pod has no metric without used; it started 1h ago and is ready since;
//	                                 request is that of the container, whole that of the pod
//	behavior                         the autoscaler's, as continuation lines
//	utilization PERCENT [CONTAINER]  prints the proposal for the processor usage
//	average QUANTITY [custom]        prints the proposal for an average usage, of the processor or a custom metric
//	value USAGE TARGET               prints the proposal for a value of an object
//	average-value USAGE TARGET       the same, divided by the pods
//	choose CURRENT NAME=N|failed...  prints which metric decides
//	limits MIN MAX                   with a behavior as continuation lines
//	propose CURRENT N                prints the number of replicas within the limits; a change is made
//	advance DURATION
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		w := &world{t: t, target: Target{Now: time.Unix(1e9, 0), Settings: Settings{
			Tolerance: 0.1, CPUInitialization: 5 * time.Minute, InitialReadiness: 30 * time.Second, Downscale: 5 * time.Minute,
		}}, samples: map[string]Sample{}}
		return w.handle
	})
}

type world struct {
	t       *testing.T
	target  Target
	samples map[string]Sample
	limits  Limits
	memory  Memory
}

func (w *world) handle(c golden.Command) string {
	switch c.Name {
	case "target":
		w.target.Replicas = w.number(c.Args[0])
		w.target.Status = w.target.Replicas
		if len(c.Args) > 1 {
			w.target.Status = w.number(c.Args[1])
		}
	case "pod":
		w.pod(c.Args[0], c.Args[1:])
	case "limits":
		w.limits = Limits{Min: w.number(c.Args[0]), Max: w.number(c.Args[1])}
		if c.Body != "" {
			w.limits.Behavior = w.behavior(c.Body)
		}
	case "behavior":
		w.target.Behavior = w.behavior(c.Body)
	case "advance":
		w.target.Now = w.target.Now.Add(w.duration(c.Args[0]))
	case "propose":
		return w.propose(w.number(c.Args[0]), w.number(c.Args[1]))
	case "choose":
		return w.choose(w.number(c.Args[0]), c.Args[1:])
	default:
		p, err := w.proposal(c)
		if err != nil {
			return "error: " + err.Error()
		}
		out := fmt.Sprintf("%d replicas, usage %s", p.Replicas, resource.NewMilliQuantity(p.Usage, resource.DecimalSI))
		if c.Name == "utilization" {
			out += fmt.Sprintf(", %d%%", p.Utilization)
		}
		return out
	}
	return ""
}

func (w *world) proposal(c golden.Command) (Proposal, error) {
	switch c.Name {
	case "utilization":
		container := ""
		if len(c.Args) > 1 {
			container = c.Args[1]
		}
		return Resource(&w.target, w.samples, corev1.ResourceCPU, container, w.number(c.Args[0]))
	case "average":
		r := corev1.ResourceCPU
		if len(c.Args) > 1 {
			r = ""
		}
		return PerPod(&w.target, w.samples, r, w.milli(c.Args[0]))
	case "value":
		return Value(&w.target, w.milli(c.Args[0]), w.milli(c.Args[1]))
	case "average-value":
		return AverageValue(&w.target, w.milli(c.Args[0]), w.milli(c.Args[1])), nil
	}
	w.t.Fatalf("unknown command %q", c.Name)
	return Proposal{}, nil
}

func (w *world) propose(current, n int32) string {
	w.memory.Start(current, w.target.Now)
	l := w.memory.Limit(w.limits, w.target.Downscale, current, n, w.target.Now)
	w.memory.Scaled(w.limits.Behavior, current, l.Replicas, w.target.Now)
	return fmt.Sprintf("%d replicas, able: %s, limited: %v %s", l.Replicas, l.Able.Reason, l.Bounded, l.Limit.Reason)
}

func (w *world) choose(current int32, words []string) string {
	var metrics []Metric
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		m := Metric{Name: name}
		if value == "failed" {
			m.Failure, m.Source, m.Err = "FailedGet"+name, name, errors.New("no "+name)
		} else {
			m.Proposal.Replicas = w.number(value)
		}
		metrics = append(metrics, m)
	}
	choice, failed, err := Choose(metrics, current)
	var out []string
	if choice != nil {
		out = append(out, fmt.Sprintf("%d replicas by %s", choice.Replicas, choice.Name))
	}
	if failed != nil {
		out = append(out, "inactive: "+failed.Failure)
	}
	if err != nil {
		out = append(out, "error: "+err.Error())
	}
	return strings.Join(out, "\n")
}

func (w *world) pod(name string, words []string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	pod.Status.Phase = corev1.PodRunning
	ago := func(d string) metav1.Time { return metav1.NewTime(w.target.Now.Add(-w.duration(d))) }
	started, ready := ago("1h"), corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago("1h")}
	sampled := w.target.Now
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "request":
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(value)}
		case "whole":
			name, quantity, _ := strings.Cut(value, ":")
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(quantity)}}
		case "used":
			w.samples[name] = Sample{Value: w.milli(value), Window: 30 * time.Second}
		case "phase":
			pod.Status.Phase = corev1.PodPhase(value)
		case "deleting":
			pod.DeletionTimestamp = &metav1.Time{}
		case "started":
			started = ago(value)
		case "ready":
			ready.LastTransitionTime = ago(value)
		case "unready":
			ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, ago(value)
		case "sampled":
			sampled = ago(value).Time
		default:
			w.t.Fatalf("unknown word %q", word)
		}
	}
	if s, ok := w.samples[name]; ok {
		s.Timestamp = sampled
		w.samples[name] = s
	}
	pod.Status.StartTime, pod.Status.Conditions = &started, []corev1.PodCondition{ready}
	w.target.Pods = append(w.target.Pods, pod)
}

func (w *world) behavior(text string) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	b := &autoscalingv2.HorizontalPodAutoscalerBehavior{}
	if err := yaml.UnmarshalStrict([]byte(text), b); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		w.t.Fatal(err)
	}
	return int32(n)
}

func (w *world) milli(text string) int64 {
	q := resource.MustParse(text)
	return q.MilliValue()
}

func (w *world) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}
