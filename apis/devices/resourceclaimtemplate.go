package devices

import (
	"context"
	"reflect"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Validate: func(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
		path := field.NewPath("spec")
		return append(validateTemplateMetadata(path.Child("metadata"), &t.Spec.ObjectMeta), validateClaim(path.Child("spec"), &t.Spec.Spec)...)
	},
	ValidateUpdate: func(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
		return apivalidation.ValidateImmutableField(t.Spec, old.Spec, field.NewPath("spec"))
	},
	BeginCreate: func(ctx context.Context, env *resource.Env, t *resourcev1.ResourceClaimTemplate, _ bool) (func(bool), error) {
		return nothing, allowAdmin(ctx, env, t, "ResourceClaimTemplate", field.NewPath("spec", "spec"), &t.Spec.Spec)
	},
	Columns: []resource.Column[*resourcev1.ResourceClaimTemplate]{
		resource.Name[*resourcev1.ResourceClaimTemplate](),
		resource.Age[*resourcev1.ResourceClaimTemplate](),
	},
}

// validateTemplateMetadata allows labels and annotations, and no other field: the
// controller makes the rest of a claim's metadata.
func validateTemplateMetadata(path *field.Path, m *metav1.ObjectMeta) field.ErrorList {
	errs := append(apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations")), metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	others := *m
	others.Annotations, others.Labels = nil, nil
	for f, value := range reflect.ValueOf(others).Fields() {
		if !value.IsZero() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(path.Child(name), "cannot be set"))
		}
	}
	return errs
}
