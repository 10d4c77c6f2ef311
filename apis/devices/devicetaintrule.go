package devices

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var deviceTaintRules = resource.Type[*resourcev1.DeviceTaintRule]{
	Name: "devicetaintrules",
	Versions: []resource.Version{
		resource.Alike[resourcev1.DeviceTaintRule, resourcev1beta2.DeviceTaintRule]().UpdatedUnconditionally(),
		resource.Alike[resourcev1.DeviceTaintRule, resourcev1alpha3.DeviceTaintRule]().UpdatedUnconditionally(),
	},
	RequireVersion: true,
	PrepareCreate: func(_ context.Context, env *resource.Env, r *resourcev1.DeviceTaintRule) {
		resource.Fill(&r.Spec.Taint.TimeAdded, metav1.NewTime(env.Clock.Now()).Rfc3339Copy())
	},
	PrepareUpdate: func(_ context.Context, env *resource.Env, r, old *resourcev1.DeviceTaintRule) {
		if r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
			r.Spec.Taint.TimeAdded = nil // a new effect counts from now
		}
		resource.Fill(&r.Spec.Taint.TimeAdded, metav1.NewTime(env.Clock.Now()).Rfc3339Copy())
	},
	Validate:   validateTaintRule,
	Generation: true,
	Status:     true,
	StatusOnly: true,
	ValidateStatus: func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
		path := field.NewPath("status", "conditions")
		return append(tooMany(path, len(r.Status.Conditions), resourcev1.DeviceTaintRuleStatusMaxConditions), metav1validation.ValidateConditions(r.Status.Conditions, path)...)
	},
	Columns: []resource.Column[*resourcev1.DeviceTaintRule]{
		resource.Name[*resourcev1.DeviceTaintRule](),
		taintColumn("Key", "key", func(t *resourcev1.DeviceTaint) any { return t.Key }),
		taintColumn("Value", "value", func(t *resourcev1.DeviceTaint) any { return t.Value }),
		taintColumn("Effect", "effect", func(t *resourcev1.DeviceTaint) any { return string(t.Effect) }),
		taintColumn("TimeAdded", "timeAdded", func(t *resourcev1.DeviceTaint) any {
			if t.TimeAdded == nil {
				return metav1.Time{}
			}
			return *t.TimeAdded
		}),
		resource.Age[*resourcev1.DeviceTaintRule](),
	},
}

func taintColumn(name, property string, value func(*resourcev1.DeviceTaint) any) resource.Column[*resourcev1.DeviceTaintRule] {
	return resource.Column[*resourcev1.DeviceTaintRule]{
		Name: name, Description: resourcev1.DeviceTaint{}.SwaggerDoc()[property],
		Value: func(r *resourcev1.DeviceTaintRule) any { return value(&r.Spec.Taint) },
	}
}

func validateTaintRule(r *resourcev1.DeviceTaintRule) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateTaint(path.Child("taint"), &r.Spec.Taint)
	selector, at := r.Spec.DeviceSelector, path.Child("deviceSelector")
	if selector == nil {
		return errs
	}
	if selector.Driver != nil {
		errs = append(errs, validateDriver(at.Child("driver"), *selector.Driver)...)
	}
	if selector.Pool != nil {
		errs = append(errs, validatePool(at.Child("pool"), *selector.Pool)...)
	}
	if selector.Device != nil {
		errs = append(errs, validateLabel(at.Child("device"), *selector.Device)...)
	}
	return errs
}
