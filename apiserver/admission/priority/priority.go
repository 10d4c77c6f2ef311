// Package priority owns the admission plugin Priority of Kubernetes: it sets the
// priority and preemption policy of new pods, and groups of pods, from their priority
// classes, by which the scheduler orders pods.
package priority

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "Priority"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{kindreader.New(informer, admission.Create, admission.Update)}, nil
	})
}

// plugin sets the priority of pods and refuses a second default class.
type plugin struct {
	kindreader.Reader[schedulinglisters.PriorityClassLister]
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
)

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[schedulinglisters.PriorityClassLister] {
	return f.Scheduling().V1().PriorityClasses()
}

// Admit implements admission.MutationInterface.
func (p *plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	// The Go type is the same for every group domain of the kind.
	switch obj := a.GetObject().(type) {
	case *corev1.Pod:
		return p.admitPod(ctx, a, obj)
	case *schedulingv1beta1.PodGroup:
		return admitGroup(ctx, p, a, &obj.Spec.PriorityClassName, &obj.Spec.Priority, &obj.Spec.PreemptionPolicy)
	case *schedulingv1alpha3.CompositePodGroup:
		return admitGroup(ctx, p, a, &obj.Spec.PriorityClassName, &obj.Spec.Priority, &obj.Spec.PreemptionPolicy)
	}
	return nil
}

func (p *plugin) admitPod(ctx context.Context, a admission.Attributes, pod *corev1.Pod) error {
	if a.GetOperation() == admission.Update {
		if old, ok := a.GetOldObject().(*corev1.Pod); ok {
			keep(&pod.Spec.Priority, old.Spec.Priority)
			keep(&pod.Spec.PreemptionPolicy, old.Spec.PreemptionPolicy)
		}
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	class, err := p.classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	pod.Spec.PriorityClassName = class.Name
	if given := pod.Spec.Priority; given != nil && *given != class.Value {
		return admission.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *given, class.Value))
	}
	pod.Spec.Priority = &class.Value
	policy := ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority)
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != policy {
		return admission.NewForbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *given, policy))
	}
	pod.Spec.PreemptionPolicy = &policy
	return nil
}

// admitGroup sets the fields of a new group of pods. Those of a group that exists do not change.
func admitGroup[Policy ~string](ctx context.Context, p *plugin, a admission.Attributes, name *string, priority **int32, policy **Policy) error {
	if a.GetOperation() != admission.Create {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	class, err := p.classOf(ctx, a, *name)
	if err != nil {
		return err
	}
	if given := *priority; given != nil && *given != class.Value {
		return admission.NewForbidden(a, fmt.Errorf("priority set in the pod group (%d) must match the priority computed (%d) based on the priority class set in the spec", *given, class.Value))
	}
	of := Policy(ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority))
	if given := *policy; given != nil && *given != of {
		return admission.NewForbidden(a, fmt.Errorf("preemptionPolicy set in the pod group (%s) must match the one computed (%s) based on the priority class set in the spec", *given, of))
	}
	*name, *priority, *policy = class.Name, &class.Value, &of
	return nil
}

// keep sets a field that an update leaves out to its old value.
func keep[T any](field **T, old *T) {
	if *field == nil {
		*field = old
	}
}

// classOf returns a copy of the class of a name. Without a name it is the default class
// or, if there is none, an empty class with the value 0.
func (p *plugin) classOf(ctx context.Context, a admission.Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		class, err := p.defaultClass()
		if err != nil || class == nil {
			return &schedulingv1.PriorityClass{}, err
		}
		return class.DeepCopy(), nil
	}
	unknown := admission.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	if len(content.IsPathSegmentName(name)) > 0 {
		return nil, unknown // it cannot be part of a URL
	}
	class, err := kindreader.Get(ctx, name, p.Lister.Get, p.Client.SchedulingV1().PriorityClasses().Get)
	if apierrors.IsNotFound(err) {
		return nil, unknown
	}
	if err != nil {
		return nil, fmt.Errorf("priority class %s: %w", name, err)
	}
	return class.DeepCopy(), nil
}

// defaultClass returns the class of pods without a class, or nil. If there are
// several, which only a race can cause, it is the one of the lowest value.
func (p *plugin) defaultClass() (*schedulingv1.PriorityClass, error) {
	classes, err := p.Lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list priority classes: %w", err)
	}
	var lowest *schedulingv1.PriorityClass
	for _, class := range classes {
		if class.GlobalDefault && (lowest == nil || class.Value < lowest.Value) {
			lowest = class
		}
	}
	return lowest, nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	class, ok := a.GetObject().(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	other, err := p.defaultClass()
	if err != nil {
		return err
	}
	if other != nil && (a.GetOperation() == admission.Create || other.Name != class.Name) {
		return admission.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
