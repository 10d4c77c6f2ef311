package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// scenario is a script that both systems carry out, in a namespace of its own.
type scenario struct {
	name  string
	steps []step
}

// step is what a client or a node does. Then the runner waits until both systems have
// settled, and compares them.
type step struct {
	what string
	do   func(ctx context.Context, s *side) error
	// again repeats the step until it does nothing, or several times.
	again bool
	// until is what both systems are expected to reach, besides being at rest.
	until func(s *side) bool
}

// then returns the step that also waits for what another step waits for.
func (s step) then(next step) step {
	s.what, s.until = s.what+", "+next.what, next.until
	return s
}

// side is one of the two systems, in the namespace of a scenario.
type side struct {
	*system
	place string
	// ips is how many addresses the pods have got; done what the last step did.
	ips, done int
}

func create(format string, args ...any) step {
	text := fmt.Sprintf(format, args...)
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		panic(fmt.Sprintf("%v in:\n%s", err, text)) // a mistake in this package
	}
	return step{what: "create " + object.GetKind() + " " + object.GetName(), do: func(ctx context.Context, s *side) error {
		o := s.inPlace(&object)
		_, err := s.resource(o.GetKind()).Create(ctx, o, metav1.CreateOptions{})
		return err
	}}
}

// inPlace returns an object with the name of the namespace wherever it says PLACE.
func (s *side) inPlace(object *unstructured.Unstructured) *unstructured.Unstructured {
	content, _ := json.Marshal(object.Object)
	o := &unstructured.Unstructured{}
	_ = json.Unmarshal([]byte(strings.ReplaceAll(string(content), "PLACE", s.place)), &o.Object)
	return o
}

// resource is the client of a kind, in the namespace if it has some.
func (s *side) resource(kind string) dynamic.ResourceInterface {
	k, ok := kinds[kind]
	if !ok {
		panic("kinds has no " + kind)
	}
	if k.cluster {
		return s.client.Resource(k.resource)
	}
	return s.client.Resource(k.resource).Namespace(s.place)
}

// patch changes an object, "Kind name" or "Kind/subresource name", by a merge patch.
func patch(object, text string) step {
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in:\n%s", err, text))
	}
	kind, name, _ := strings.Cut(object, " ")
	kind, sub, _ := strings.Cut(kind, "/")
	return step{what: "patch " + object + " " + text, do: func(ctx context.Context, s *side) error {
		body := strings.ReplaceAll(string(content), "PLACE", s.place)
		var subs []string
		if sub != "" {
			subs = []string{sub}
		}
		_, err := s.resource(kind).Patch(ctx, s.realName(kind, name), types.MergePatchType, []byte(body), metav1.PatchOptions{}, subs...)
		return err
	}}
}

// realName returns the name of an object that is compared under another one.
func (s *side) realName(kind, known string) string {
	real := strings.ReplaceAll(known, "PLACE", s.place)
	s.recorder.read(s.place, func(p *record) {
		n := namesIn(s.place, p)
		for uid, o := range p.live {
			if o.GetKind() == kind && n.of[uid] == known {
				real = o.GetName()
			}
		}
	})
	return real
}

func remove(object string, propagation metav1.DeletionPropagation) step {
	kind, name, _ := strings.Cut(object, " ")
	return step{what: fmt.Sprintf("delete %s %s", object, propagation), do: func(ctx context.Context, s *side) error {
		return s.resource(kind).Delete(ctx, s.realName(kind, name), metav1.DeleteOptions{PropagationPolicy: &propagation})
	}}
}

// removeAll deletes all objects of a kind in the background.
func removeAll(kind string) step {
	return step{what: "delete each " + kind, do: func(ctx context.Context, s *side) error {
		policy := metav1.DeletePropagationBackground
		return s.resource(kind).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &policy}, metav1.ListOptions{})
	}}
}

// evict asks for the eviction of the pods that match a pattern.
func evict(pattern string) step {
	return step{what: "evict " + pattern, do: func(ctx context.Context, s *side) error {
		for _, p := range s.pods(pattern) {
			err := s.typed.PolicyV1().Evictions(s.place).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}})
			if err != nil && !apierrors.IsTooManyRequests(err) {
				return err
			}
		}
		return nil
	}}
}

// reaches waits until a field of an object has a value, on top of the step before.
func reaches(object, field, value string) step {
	kind, name, _ := strings.Cut(object, " ")
	return step{what: "until " + object + " " + field + " is " + value, until: func(s *side) bool {
		o := s.recorder.find(s.place, kind, strings.ReplaceAll(name, "PLACE", s.place))
		if o == nil {
			return value == "gone"
		}
		return fieldOf(o, field) == value
	}}
}

// fieldOf returns a field as text: "status.phase", or the status of a condition, "Ready?",
// or its reason, "Ready!".
func fieldOf(o *unstructured.Unstructured, field string) string {
	for suffix, part := range map[string]string{"?": "status", "!": "reason"} {
		condition, ok := strings.CutSuffix(field, suffix)
		if !ok {
			continue
		}
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range list {
			if c, _ := c.(map[string]any); c["type"] == condition {
				return fmt.Sprint(c[part])
			}
		}
		return ""
	}
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(field, ".")...)
	return fmt.Sprint(value)
}

// pod is a pod with the name under which it is compared.
type pod struct {
	*corev1.Pod
	known string
}

// pods returns the pods whose names match a pattern, in the order of these.
func (s *side) pods(pattern string) []pod {
	var all []pod
	s.recorder.read(s.place, func(p *record) {
		n := namesIn(s.place, p)
		for uid, o := range p.live {
			if o.GetKind() != "Pod" {
				continue
			}
			if ok, _ := path.Match(pattern, n.of[uid]); !ok {
				continue
			}
			var typed corev1.Pod
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err == nil {
				all = append(all, pod{&typed, n.of[uid]})
			}
		}
	})
	slices.SortFunc(all, func(a, b pod) int { return strings.Compare(a.known, b.known) })
	return all
}

// answer lets the node do something to the pods that match a pattern: it is one of the
// functions below.
func answer(how, pattern string) step {
	do, ok := answers[how]
	if !ok {
		panic("there is no answer " + how)
	}
	return step{what: how + " " + pattern, do: func(ctx context.Context, s *side) error {
		for _, p := range s.pods(pattern) {
			if err := do(ctx, s, p.Pod); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s: %w", p.known, err)
			}
		}
		return nil
	}}
}

// rollout lets the node run and stop pods until there is nothing left to do; slowly is the
// same with pods that become ready one by one.
func rollout() step { return works("the node works", 1000) }
func slowly() step  { return works("the node works slowly", 1) }

func works(what string, most int) step {
	return step{what: what, again: true, do: func(ctx context.Context, s *side) error {
		var errs []error
		started := 0
		for _, p := range s.pods("*") {
			var err error
			switch {
			case p.DeletionTimestamp != nil && ptr.Deref(p.DeletionGracePeriodSeconds, 0) > 0:
				s.done++
				err = stop(ctx, s, p.Pod)
			case p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending && started < most:
				s.done++
				started++
				err = run(ctx, s, p.Pod)
			}
			if err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("pod %s: %w", p.known, err))
			}
		}
		return errors.Join(errs...)
	}}
}

var answers = map[string]func(ctx context.Context, s *side, p *corev1.Pod) error{
	// run: it becomes ready; start: it runs without being ready; unready: it is no longer ready.
	"run": run,
	"start": func(ctx context.Context, s *side, p *corev1.Pod) error {
		return s.running(ctx, p, corev1.ConditionFalse)
	},
	"unready": func(ctx context.Context, s *side, p *corev1.Pod) error {
		return s.running(ctx, p, corev1.ConditionFalse)
	},
	// finish and fail: its containers end.
	"finish": func(ctx context.Context, s *side, p *corev1.Pod) error { return s.end(ctx, p, corev1.PodSucceeded, 0) },
	"fail":   func(ctx context.Context, s *side, p *corev1.Pod) error { return s.end(ctx, p, corev1.PodFailed, 1) },
	"fail42": func(ctx context.Context, s *side, p *corev1.Pod) error { return s.end(ctx, p, corev1.PodFailed, 42) },
	// restart: its containers have ended and run again.
	"restart": func(ctx context.Context, s *side, p *corev1.Pod) error {
		status := corev1.PodStatus{Phase: corev1.PodRunning}
		for _, c := range p.Status.ContainerStatuses {
			c.RestartCount++
			status.ContainerStatuses = append(status.ContainerStatuses, c)
		}
		return s.status(ctx, p, status)
	},
	// bind: it gets the node.
	"bind": func(ctx context.Context, s *side, p *corev1.Pod) error { return s.bind(ctx, p) },
	// kill: a client deletes it; stop: the node has stopped it.
	"kill": func(ctx context.Context, s *side, p *corev1.Pod) error {
		return s.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	},
	"stop": stop,
	// disrupt: something writes that it is going to evict it.
	"disrupt": func(ctx context.Context, s *side, p *corev1.Pod) error {
		return s.status(ctx, p, corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}}})
	},
}

func run(ctx context.Context, s *side, p *corev1.Pod) error {
	if err := s.bind(ctx, p); err != nil {
		return err
	}
	return s.running(ctx, p, corev1.ConditionTrue)
}

// bind binds a pod to the node that its affinity names or to the common one.
func (s *side) bind(ctx context.Context, p *corev1.Pod) error {
	if p.Spec.NodeName != "" {
		return nil
	}
	node := commonNode
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range term.MatchFields {
				node = f.Values[0]
			}
		}
	}
	err := s.typed.CoreV1().Pods(p.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) {
		return nil // it has one
	}
	return err
}

func (s *side) running(ctx context.Context, p *corev1.Pod, ready corev1.ConditionStatus) error {
	if p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning {
		return nil
	}
	ip := p.Status.PodIP
	if ip == "" {
		s.ips++
		ip = fmt.Sprintf("10.1.%d.%d", s.ips/250, s.ips%250+1)
	}
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}}}
	if status.StartTime = p.Status.StartTime; status.StartTime == nil {
		status.StartTime = &now
	}
	for _, c := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		condition := corev1.PodCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if c != corev1.PodInitialized {
			condition.Status = ready
		}
		status.Conditions = append(status.Conditions, condition)
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: ready == corev1.ConditionTrue, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s.status(ctx, p, status)
}

func (s *side) end(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, code int32) error {
	if err := s.bind(ctx, p); err != nil {
		return err
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	now := metav1.Now()
	status := corev1.PodStatus{Phase: phase}
	if status.StartTime = p.Status.StartTime; status.StartTime == nil {
		status.StartTime = &now
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionFalse, LastTransitionTime: now})
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended", StartedAt: now, FinishedAt: now}},
		})
	}
	return s.status(ctx, p, status)
}

// stop ends a pod that is being deleted, as a kubelet does.
func stop(ctx context.Context, s *side, p *corev1.Pod) error {
	if p.DeletionTimestamp == nil {
		return nil
	}
	if err := s.end(ctx, p, corev1.PodFailed, 137); err != nil {
		return err
	}
	return s.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
	})
}

// status changes the fields of a pod's status that are set.
func (s *side) status(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) error {
	content, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = s.typed.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, content, metav1.PatchOptions{}, "status")
	return err
}
