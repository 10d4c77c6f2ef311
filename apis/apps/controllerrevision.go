package apps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var controllerRevisions = resource.Type[*appsv1.ControllerRevision]{
	Name: "controllerrevisions", Namespaced: true,
	Validate: func(r *appsv1.ControllerRevision) field.ErrorList {
		return slices.Concat(workload.ValidateCounts(nil, workload.Of("revision", r.Revision)), validateRevisionData(r.Data.Raw, field.NewPath("data")))
	},
	ValidateUpdate: func(r, old *appsv1.ControllerRevision) field.ErrorList {
		return apivalidation.ValidateImmutableField(r.Data, old.Data, field.NewPath("data"))
	},
	Columns: []resource.Column[*appsv1.ControllerRevision]{
		resource.Name[*appsv1.ControllerRevision](),
		{Name: "Controller", Description: "Controller of the object", Value: controllerOf},
		{Name: "Revision", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"],
			Value: func(r *appsv1.ControllerRevision) any { return r.Revision }},
		resource.Age[*appsv1.ControllerRevision](),
	},
}

// controllerOf returns the controller as kubectl takes it, for example
// deployment.apps/web.
func controllerOf(r *appsv1.ControllerRevision) any {
	ref := metav1.GetControllerOf(r)
	if ref == nil {
		return "<none>"
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return strings.ToLower(kind.String()) + "/" + ref.Name
}

// validateRevisionData requires a JSON object. Its content is not repeated in
// messages: it may be confidential.
func validateRevisionData(raw []byte, path *field.Path) field.ErrorList {
	if raw == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	var data any
	if err := json.Unmarshal(raw, &data); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data: %v", err))}
	}
	if data == nil {
		return field.ErrorList{field.Required(path, "data is mandatory")}
	}
	if _, isObject := data.(map[string]any); !isObject {
		return field.ErrorList{field.Required(path, "data must be a valid JSON object")}
	}
	return nil
}
