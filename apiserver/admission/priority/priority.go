// Package priority owns the admission plugin Priority of Kubernetes: it sets the
// priority and preemption policy of new pods from their priority classes, by
// which the scheduler orders pods.
package priority

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
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
	class, err := p.classOf(ctx, a, pod)
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

// keep sets a field that an update leaves out to its old value.
func keep[T any](field **T, old *T) {
	if *field == nil {
		*field = old
	}
}

// classOf returns a copy of the pod's class. For a pod without a class it is the
// default class or, if there is none, an empty class with the value 0.
func (p *plugin) classOf(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (*schedulingv1.PriorityClass, error) {
	name := pod.Spec.PriorityClassName
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
