package groups

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// scenario is a script that both systems carry out.
type scenario struct {
	name  string
	steps []step
}

// step is what clients and nodes do. Then the two are compared.
type step struct {
	what string
	do   func(ctx context.Context, s *system) error
}

// all is a step of several.
func all(steps ...step) step {
	var names []string
	for _, s := range steps {
		names = append(names, s.what)
	}
	return step{strings.Join(names, ", "), func(ctx context.Context, s *system) error {
		for _, step := range steps {
			if err := step.do(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
		}
		return nil
	}}
}

// nodes creates nodes with so many processors each.
func nodes(cpu string, names ...string) step {
	return step{"nodes " + strings.Join(names, " "), func(ctx context.Context, s *system) error {
		for _, name := range names {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
			node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")}
			node.Status.Capacity = node.Status.Allocatable
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if _, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				return err
			}
			// The registration of a node may have dropped its status.
			if _, err := s.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	}}
}

type podOption func(*corev1.Pod)

// in lets a pod belong to a group.
func in(group string) podOption {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group} }
}

// class gives a pod a priority.
func class(name string) podOption { return func(p *corev1.Pod) { p.Spec.PriorityClassName = name } }

// on binds a pod from the start.
func on(node string) podOption { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// needs sets the processors that a pod requests.
func needs(cpu string) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu) }
}

// began sets the minute at which a pod started.
func began(minute int) podOption {
	return func(p *corev1.Pod) {
		p.Status.StartTime = &metav1.Time{Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}
	}
}

func labelled(app string) podOption {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
}

func gated(p *corev1.Pod) {
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
}

// pods creates pods that request a processor.
func pods(names string, options ...podOption) step {
	return step{"pods " + names, func(ctx context.Context, s *system) error {
		for _, name := range strings.Fields(names) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
			for _, option := range options {
				option(pod)
			}
			status := pod.Status
			created, err := s.client.CoreV1().Pods(s.place).Create(ctx, pod, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if status.StartTime == nil {
				continue
			}
			created.Status.StartTime, created.Status.Phase = status.StartTime, corev1.PodRunning
			if _, err := s.client.CoreV1().Pods(s.place).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		return nil
	}}
}

type groupOption func(*schedulingv1beta1.PodGroup)

func classOf(name string) groupOption {
	return func(g *schedulingv1beta1.PodGroup) { g.Spec.PriorityClassName = name }
}

// together lets the pods of a group be preempted at the same time only.
func together(g *schedulingv1beta1.PodGroup) {
	g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
}

// group creates a PodGroup: a gang that needs so many pods or, with 0, of the policy basic.
func group(name string, minCount int32, options ...groupOption) step {
	return step{fmt.Sprintf("group %s of %d", name, minCount), func(ctx context.Context, s *system) error {
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if minCount == 0 {
			g.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
		} else {
			g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
		}
		for _, option := range options {
			option(g)
		}
		_, err := s.client.SchedulingV1beta1().PodGroups(s.place).Create(ctx, g, metav1.CreateOptions{})
		return err
	}}
}

// needsOnly changes how many pods a gang needs.
func needsOnly(name string, minCount int) step {
	return step{fmt.Sprintf("group %s of %d only", name, minCount), func(ctx context.Context, s *system) error {
		patch := fmt.Appendf(nil, `{"spec": {"schedulingPolicy": {"gang": {"minCount": %d}}}}`, minCount)
		_, err := s.client.SchedulingV1beta1().PodGroups(s.place).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}}
}

func deleteGroup(name string) step {
	return step{"delete group " + name, func(ctx context.Context, s *system) error {
		return s.client.SchedulingV1beta1().PodGroups(s.place).Delete(ctx, name, metav1.DeleteOptions{})
	}}
}

// gone ends and removes pods. Those that have gone already are left out.
func gone(names string) step {
	return step{"pods " + names + " are gone", func(ctx context.Context, s *system) error {
		for _, name := range strings.Fields(names) {
			if err := s.client.CoreV1().Pods(s.place).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
				return err
			}
		}
		return nil
	}}
}

// victimsGone removes the pods that are being deleted, as their nodes do.
var victimsGone = step{"victims are gone", func(ctx context.Context, s *system) error {
	list, err := s.client.CoreV1().Pods(s.place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		if err := s.client.CoreV1().Pods(s.place).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			return err
		}
	}
	return nil
}}

// ends lets pods end well.
func ends(names string) step {
	return step{"pods " + names + " end", func(ctx context.Context, s *system) error {
		for _, name := range strings.Fields(names) {
			if _, err := s.client.CoreV1().Pods(s.place).Patch(ctx, name, types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
				return err
			}
		}
		return nil
	}}
}

// openGates removes the scheduling gates of pods.
func openGates(names string) step {
	return step{"open the gates of " + names, func(ctx context.Context, s *system) error {
		for _, name := range strings.Fields(names) {
			if _, err := s.client.CoreV1().Pods(s.place).Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"schedulingGates": null}}`), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	}}
}

// budget protects the pods with a label: so many of them may be disrupted.
func budget(app string, allowed int32) step {
	return step{fmt.Sprintf("budget of %s: %d", app, allowed), func(ctx context.Context, s *system) error {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: app}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		b, err := s.client.PolicyV1().PodDisruptionBudgets(s.place).Create(ctx, b, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		b.Status.DisruptionsAllowed = allowed
		_, err = s.client.PolicyV1().PodDisruptionBudgets(s.place).UpdateStatus(ctx, b, metav1.UpdateOptions{})
		return err
	}}
}

// deleteNode removes a node.
func deleteNode(name string) step {
	return step{"delete node " + name, func(ctx context.Context, s *system) error {
		return s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	}}
}

// schedulerKilled kills the scheduler; schedulerStarts starts another one.
var (
	schedulerKilled = step{"the scheduler is killed", func(_ context.Context, s *system) error {
		s.scheduler.Kill()
		s.scheduler = nil
		return nil
	}}
	schedulerStarts = step{"the scheduler starts", func(_ context.Context, s *system) (err error) {
		s.scheduler, err = s.begins()
		return err
	}}
)
