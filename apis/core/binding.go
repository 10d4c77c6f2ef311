package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var podResource = schema.GroupResource{Resource: "pods"}

// binding assigns a pod to a node.
var binding = resource.Action{
	Name:  "binding",
	Input: func() runtime.Object { return &corev1.Binding{} },
	Run: func(ctx context.Context, env *resource.Env, req resource.ActionRequest) (runtime.Object, error) {
		return bind(ctx, env, req.Input.(*corev1.Binding), req.Namespace, req.Name, req.DryRun)
	},
}

// bindings is the same operation, posted to the namespace: the older form.
var bindings = resource.Virtual[*corev1.Binding]{
	Name: "bindings", Namespaced: true,
	Run: func(ctx context.Context, env *resource.Env, b *corev1.Binding, dryRun bool) (runtime.Object, error) {
		return bind(ctx, env, b, b.Namespace, b.Name, dryRun)
	},
}

func bind(ctx context.Context, env *resource.Env, b *corev1.Binding, namespace, name string, dryRun bool) (runtime.Object, error) {
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	_, err := env.Objects(podResource).Update(ctx, namespace, name, dryRun, func(obj runtime.Object) (runtime.Object, error) {
		pod := obj.(*corev1.Pod)
		if err := assign(pod, b, env.Clock.Now()); err != nil {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, err)
		}
		if env.BindingLabels {
			pod.Labels = merged(pod.Labels, b.Labels)
		}
		return pod, nil
	})
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	name := field.NewPath("target", "name")
	if b.Target.Name == "" {
		return append(errs, field.Required(name, ""))
	}
	if len(errs) == 0 {
		errs = resource.Invalid(name, b.Target.Name, validation.IsDNS1123Subdomain(b.Target.Name))
	}
	return errs
}

// assign sets the pod's node and adds the binding's annotations. It
// returns an error if the pod has a node, is being deleted, has scheduling gates,
// or does not meet the binding's preconditions (UID and resource version).
func assign(pod *corev1.Pod, b *corev1.Binding, now time.Time) error {
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", b.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return errors.New("pod " + pod.Name + " has non-empty .spec.schedulingGates")
	}
	pod.Spec.NodeName = b.Target.Name
	// The nomination ends here: autoscalers would take it for a pod that waits.
	pod.Status.NominatedNodeName = ""
	pod.Annotations = merged(pod.Annotations, b.Annotations)
	podspec.DropInitContainerAnnotations(pod.Annotations)
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
	return nil
}

// merged returns the map, which may be nil, with the entries of from added.
func merged(to, from map[string]string) map[string]string {
	if to == nil && len(from) > 0 {
		to = make(map[string]string, len(from))
	}
	for key, value := range from {
		to[key] = value
	}
	return to
}
