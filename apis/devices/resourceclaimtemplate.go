package devices

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var resourceClaimTemplates = resource.Type[*resourcev1.ResourceClaimTemplate]{
	Name: "resourceclaimtemplates", Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[resourcev1.ResourceClaimTemplate, resourcev1beta2.ResourceClaimTemplate](),
		resource.Convert(templateFromV1beta1, templateToV1beta1),
	},
	Default: func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
	ValidateCreate: func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
		path := field.NewPath("spec")
		errs := metav1validation.ValidateLabels(t.Spec.Labels, path.Child("metadata", "labels"))
		errs = append(errs, apivalidation.ValidateAnnotations(t.Spec.Annotations, path.Child("metadata", "annotations"))...)
		return append(errs, validateClaim(path.Child("spec"), &t.Spec.Spec)...)
	},
	ValidateUpdate: func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
		return apivalidation.ValidateImmutableField(t.Spec, old.Spec, field.NewPath("spec"))
	},
	BeginCreate: func(ctx context.Context, env *resource.Env, t *resourcev1.ResourceClaimTemplate, _ bool) (func(bool), error) {
		return nothing, allowAdmin(ctx, env, "resourceclaimtemplates", t.Namespace, t.Name, &t.Spec.Spec)
	},
	Columns: []resource.Column[*resourcev1.ResourceClaimTemplate]{
		resource.Name[*resourcev1.ResourceClaimTemplate](),
		resource.Age[*resourcev1.ResourceClaimTemplate](),
	},
}
