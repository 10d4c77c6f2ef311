package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	defaults "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	flowcontrolv1client "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/pki"
	"svc.dev/svc/internal/items"
)

// flowControlManager owns the fields of the objects that EnsureFlowControl
// writes.
const flowControlManager = "api-priority-and-fairness-config-producer-v1"

// EnsureFlowControl writes the flow-control objects. The specification of mandatory
// objects is always restored. That of suggested objects is restored if their
// annotation apf.kubernetes.io/autoupdate-spec is true or, without the annotation,
// if no client has changed them. Deleted objects are created again. Objects of
// former releases are deleted if their annotation is true.
func EnsureFlowControl(ctx context.Context, client flowcontrolv1client.FlowcontrolV1Interface) error {
	levels, err := client.PriorityLevelConfigurations().List(ctx, cachedList())
	if err != nil {
		return fmt.Errorf("list priority level configurations: %w", err)
	}
	schemas, err := client.FlowSchemas().List(ctx, cachedList())
	if err != nil {
		return fmt.Errorf("list flow schemas: %w", err)
	}
	levelChanges := priorityLevels().changes(items.Pointers(levels.Items))
	schemaChanges := flowSchemas().changes(items.Pointers(schemas.Items))
	// A schema refers to a level: levels are created first and deleted last.
	return errors.Join(
		write(ctx, client.PriorityLevelConfigurations(), levelChanges.create, levelChanges.update),
		write(ctx, client.FlowSchemas(), schemaChanges.create, schemaChanges.update),
		remove(ctx, client.FlowSchemas(), schemaChanges.remove),
		remove(ctx, client.PriorityLevelConfigurations(), levelChanges.remove),
	)
}

// configuration is the desired state of one type of objects.
type configuration[T metav1.Object] struct {
	mandatory, suggested []T
	// sameSpec compares the parts that an object's owner may not change.
	sameSpec func(wanted, current T) bool
	copy     func(T) T
	setSpec  func(into, from T)
}

func priorityLevels() configuration[*flowcontrolv1.PriorityLevelConfiguration] {
	type level = flowcontrolv1.PriorityLevelConfiguration
	return configuration[*level]{
		mandatory: defaults.MandatoryPriorityLevelConfigurations,
		suggested: defaults.SuggestedPriorityLevelConfigurations,
		copy:      (*level).DeepCopy,
		setSpec:   func(into, from *level) { into.Spec = *from.Spec.DeepCopy() },
		sameSpec: func(wanted, current *level) bool {
			// An operator may lend the exempt level concurrency.
			if wanted.Spec.Exempt != nil && current.Spec.Exempt != nil {
				wanted = wanted.DeepCopy()
				wanted.Spec.Exempt = current.Spec.Exempt
			}
			return equality.Semantic.DeepEqual(wanted.Spec, current.Spec)
		},
	}
}

func flowSchemas() configuration[*flowcontrolv1.FlowSchema] {
	type schema = flowcontrolv1.FlowSchema
	return configuration[*schema]{
		mandatory: defaults.MandatoryFlowSchemas,
		suggested: append(ofControllers(), defaults.SuggestedFlowSchemas...),
		copy:      (*schema).DeepCopy,
		setSpec:   func(into, from *schema) { into.Spec = *from.Spec.DeepCopy() },
		sameSpec:  func(wanted, current *schema) bool { return equality.Semantic.DeepEqual(wanted.Spec, current.Spec) },
	}
}

// ofControllers returns the flow schemas of svc's controllers, and of `svc up`: they have the
// priority of kube-controller-manager, whose flow schemas name its own user.
func ofControllers() []*flowcontrolv1.FlowSchema {
	as := func(name string, like *flowcontrolv1.FlowSchema, users ...string) *flowcontrolv1.FlowSchema {
		schema := like.DeepCopy()
		schema.Name = name
		schema.Spec.Rules[0].Subjects = nil
		for _, user := range users {
			schema.Spec.Rules[0].Subjects = append(schema.Spec.Rules[0].Subjects,
				flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}})
		}
		return schema
	}
	return []*flowcontrolv1.FlowSchema{
		as("svc-leader-election", defaults.SuggestedFlowSchemaSystemLeaderElection, pki.ControllersClient),
		as("svc-controller-manager", defaults.SuggestedFlowSchemaKubeControllerManager, pki.ControllersClient, pki.UpClient),
	}
}

// changes are the writes that bring the objects to the desired state.
type changes[T any] struct{ create, update, remove []T }

// changes compares the existing objects with the desired ones.
func (c configuration[T]) changes(existing []T) changes[T] {
	byName := map[string]T{}
	for _, obj := range existing {
		byName[obj.GetName()] = obj
	}
	var result changes[T]
	for _, wanted := range slices.Concat(c.mandatory, c.suggested) {
		current, ok := byName[wanted.GetName()]
		if !ok {
			result.create = append(result.create, c.copy(wanted))
			continue
		}
		delete(byName, wanted.GetName())
		automatic := slices.ContainsFunc(c.mandatory, func(m T) bool { return m.GetName() == wanted.GetName() }) || isAutomatic(current)
		if revised, ok := c.revise(current, wanted, automatic); ok {
			result.update = append(result.update, revised)
		}
	}
	for _, obj := range existing {
		_, unknown := byName[obj.GetName()]
		if value, ok := annotation(obj); unknown && ok && value {
			result.remove = append(result.remove, obj)
		}
	}
	return result
}

// revise returns the object in its desired state, and reports whether that is a
// change. If automatic is set, the specification must be the wanted one. The
// annotation must have the value of automatic.
func (c configuration[T]) revise(current, wanted T, automatic bool) (T, bool) {
	value, ok := annotation(current)
	annotated := ok && value == automatic
	same := !automatic || c.sameSpec(wanted, current)
	if annotated && same {
		return current, false
	}
	revised := c.copy(current)
	if !same {
		c.setSpec(revised, wanted)
	}
	annotations := revised.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(automatic)
	revised.SetAnnotations(annotations)
	return revised, true
}

// isAutomatic reports whether the specification of a suggested object is restored:
// if its annotation is true or, without one, if no client has changed it.
func isAutomatic(obj metav1.Object) bool {
	if value, ok := annotation(obj); ok {
		return value
	}
	return obj.GetGeneration() == 1
}

// annotation returns the value of the object's annotation, and reports whether it has a valid one.
func annotation(obj metav1.Object) (value, ok bool) {
	value, err := strconv.ParseBool(obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	return value, err == nil
}

// writer is the part of a typed client that the changes need.
type writer[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// write creates and updates objects. If another server has created an object
// meanwhile, that is not an error.
func write[T metav1.Object](ctx context.Context, client writer[T], create, update []T) error {
	return errors.Join(
		each(ctx, create, func(ctx context.Context, obj T) error {
			_, err := client.Create(ctx, obj, metav1.CreateOptions{FieldManager: flowControlManager})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create %T %s: %w", obj, obj.GetName(), err)
			}
			return nil
		}),
		each(ctx, update, func(ctx context.Context, obj T) error {
			if _, err := client.Update(ctx, obj, metav1.UpdateOptions{FieldManager: flowControlManager}); err != nil {
				return fmt.Errorf("update %T %s: %w", obj, obj.GetName(), err)
			}
			return nil
		}),
	)
}

// remove deletes the objects, unless they have changed since they were read.
func remove[T metav1.Object](ctx context.Context, client writer[T], objects []T) error {
	return each(ctx, objects, func(ctx context.Context, obj T) error {
		unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion()),
		}}
		err := client.Delete(ctx, obj.GetName(), unchanged)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %T %s: %w", obj, obj.GetName(), err)
		}
		return nil
	})
}
