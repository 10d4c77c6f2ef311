package devices

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var resourceSlices = resource.Type[*resourcev1.ResourceSlice]{
	Name: "resourceslices",
	Versions: []resource.Version{
		resource.Alike[resourcev1.ResourceSlice, resourcev1beta2.ResourceSlice](),
		resource.Convert(sliceFromV1beta1, sliceToV1beta1),
	},
	PrepareCreate: func(_ context.Context, env *resource.Env, s *resourcev1.ResourceSlice) { stampTaints(env, s) },
	PrepareUpdate: func(_ context.Context, env *resource.Env, s, _ *resourcev1.ResourceSlice) { stampTaints(env, s) },
	Validate:      validateSlice,
	ValidateUpdate: func(s, old *resourcev1.ResourceSlice) field.ErrorList {
		path := field.NewPath("spec")
		errs := apivalidation.ValidateImmutableField(s.Spec.NodeName, old.Spec.NodeName, path.Child("nodeName"))
		errs = append(errs, apivalidation.ValidateImmutableField(s.Spec.Driver, old.Spec.Driver, path.Child("driver"))...)
		return append(errs, apivalidation.ValidateImmutableField(s.Spec.Pool.Name, old.Spec.Pool.Name, path.Child("pool", "name"))...)
	},
	Generation: true,
	Columns: []resource.Column[*resourcev1.ResourceSlice]{
		resource.Name[*resourcev1.ResourceSlice](),
		sliceColumn("Node", resourcev1.ResourceSliceSpec{}.SwaggerDoc()["nodeName"], func(s *resourcev1.ResourceSliceSpec) string {
			if s.NodeName == nil {
				return "<unset>"
			}
			return *s.NodeName
		}),
		sliceColumn("Driver", resourcev1.ResourceSliceSpec{}.SwaggerDoc()["driver"], func(s *resourcev1.ResourceSliceSpec) string { return s.Driver }),
		sliceColumn("Pool", resourcev1.ResourcePool{}.SwaggerDoc()["name"], func(s *resourcev1.ResourceSliceSpec) string { return s.Pool.Name }),
		resource.Age[*resourcev1.ResourceSlice](),
	},
	Fields: map[string]func(*resourcev1.ResourceSlice) string{
		resourcev1.ResourceSliceSelectorNodeName: func(s *resourcev1.ResourceSlice) string {
			if s.Spec.NodeName == nil {
				return ""
			}
			return *s.Spec.NodeName
		},
		resourcev1.ResourceSliceSelectorDriver:   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
		resourcev1.ResourceSliceSelectorPoolName: func(s *resourcev1.ResourceSlice) string { return s.Spec.Pool.Name },
	},
	WatchField: resourcev1.ResourceSliceSelectorNodeName,
}

func sliceColumn(name, description string, value func(*resourcev1.ResourceSliceSpec) string) resource.Column[*resourcev1.ResourceSlice] {
	return resource.Column[*resourcev1.ResourceSlice]{
		Name: name, Description: description,
		Value: func(s *resourcev1.ResourceSlice) any { return value(&s.Spec) },
	}
}

// stampTaints sets the times of taints that have none.
func stampTaints(env *resource.Env, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			resource.Fill(&s.Spec.Devices[i].Taints[j].TimeAdded, metav1.NewTime(env.Clock.Now()).Rfc3339Copy())
		}
	}
}
