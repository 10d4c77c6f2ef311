package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/devices"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const (
	sets = "/apis/apps/v1/namespaces/default/deployments"
	aSet = sets + "/a"
)

// set declares a kind with a status, a generation and a scale, and no rules of
// its own.
func set() resource.Type[*appsv1.Deployment] {
	return resource.Type[*appsv1.Deployment]{
		Name: "deployments", Namespaced: true, Status: true, Generation: true,
		Scale: &resource.Scale[*appsv1.Deployment]{
			Replicas: func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
			Current:  func(d *appsv1.Deployment) int32 { return d.Status.Replicas },
			Selector: func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector },
		},
		Columns: []resource.Column[*appsv1.Deployment]{
			resource.Name[*appsv1.Deployment](),
			{Name: "Replicas", Type: "integer", Value: func(d *appsv1.Deployment) any { return int64(d.Status.Replicas) }},
			resource.Age[*appsv1.Deployment](),
		},
	}
}

const setBody = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, labels: {app: a}}, spec: {replicas: 1, paused: true, selector: {matchLabels: {app: a}}}, status: {replicas: 7}}`

func startSet(t *testing.T) *registrytest.Stack {
	t.Helper()
	s := registrytest.Start(t, set())
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	return s
}

func TestCreateIgnoresStatus(t *testing.T) {
	s := startSet(t)
	if got := s.Do(http.MethodGet, aSet, nil).Want(http.StatusOK).Field("status", "replicas"); got != nil {
		t.Errorf("status.replicas is %v", got)
	}
}

func TestCreateKeepsStatusOfKindsThatAllowIt(t *testing.T) {
	d := set()
	d.StatusOnCreate = true
	s := registrytest.Start(t, d)
	if got := s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated).Field("status", "replicas"); got != float64(7) {
		t.Errorf("status.replicas is %v", got)
	}
}

func TestAnUpdateOfTheObjectIgnoresStatus(t *testing.T) {
	s := startSet(t)
	s.Patch("merge", aSet+"/status", `{status: {replicas: 3}}`).Want(http.StatusOK)
	got := s.Patch("merge", aSet, `{spec: {replicas: 2}, status: {replicas: 9}}`).Want(http.StatusOK)
	if got.Field("status", "replicas") != float64(3) || got.Field("spec", "replicas") != float64(2) {
		t.Errorf("got %s", got.Body)
	}
	// A PUT without a status does not clear it.
	got = s.Do(http.MethodPut, aSet, setBody).Want(http.StatusOK)
	if got.Field("status", "replicas") != float64(3) {
		t.Errorf("got %s", got.Body)
	}
}

func TestAnUpdateOfTheStatusChangesOnlyStatusAndMetadata(t *testing.T) {
	s := startSet(t)
	got := s.Patch("merge", aSet+"/status", `{metadata: {annotations: {a: b}}, spec: {replicas: 5, paused: false}, status: {replicas: 4}}`).Want(http.StatusOK)
	for want, got := range map[any]any{
		float64(4): got.Field("status", "replicas"),
		float64(1): got.Field("spec", "replicas"),
		true:       got.Field("spec", "paused"),
		"b":        got.Field("metadata", "annotations", "a"),
	} {
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := got.Field("metadata", "generation"); got != float64(1) {
		t.Errorf("the generation is %v", got)
	}
}

// TestAnUpdateOfAStatusOnlyChangesNoMetadata: the permission to write the status gives none
// to remove finalizers and owners.
func TestAnUpdateOfAStatusOnlyChangesNoMetadata(t *testing.T) {
	d := set()
	d.StatusOnly = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, labels: {app: a}, annotations: {a: b}, finalizers: [example.com/a],
		ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: "1"}]}, spec: {replicas: 1}}`).Want(http.StatusCreated)
	const metadata = `metadata: {labels: {app: b}, annotations: null, finalizers: null, ownerReferences: null}`
	s.Patch("apply", aSet+"/status?fieldManager=ann", `{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {app: c}}, status: {replicas: 3}}`).Want(http.StatusOK)
	got := s.Patch("merge", aSet+"/status", `{`+metadata+`, status: {replicas: 4}}`).Want(http.StatusOK)
	for _, want := range []struct {
		path  []string
		value any
	}{
		{[]string{"status", "replicas"}, float64(4)},
		{[]string{"metadata", "labels", "app"}, "a"},
		{[]string{"metadata", "annotations", "a"}, "b"},
	} {
		if got := got.Field(want.path...); got != want.value {
			t.Errorf("%v is %v, want %v", want.path, got, want.value)
		}
	}
	for _, path := range [][]string{{"metadata", "finalizers"}, {"metadata", "ownerReferences"}} {
		if list, _ := got.Field(path...).([]any); len(list) != 1 {
			t.Errorf("%v is %v", path, list)
		}
	}
	for _, entry := range got.Field("metadata", "managedFields").([]any) {
		if entry := entry.(map[string]any); entry["subresource"] == "status" && strings.Contains(fmt.Sprint(entry["fieldsV1"]), "f:metadata") {
			t.Errorf("a manager of the status owns metadata: %v", entry)
		}
	}
}

func TestAStatusIsNotCreatedByAnUpdate(t *testing.T) {
	d := set()
	d.CreateOnUpdate = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPut, aSet+"/status", setBody).Want(http.StatusNotFound)
	s.Do(http.MethodPut, aSet, setBody).Want(http.StatusCreated)
}

func TestFieldsThatAnEndpointResetsAreNotOwned(t *testing.T) {
	d := set()
	d.PrepareStatus, d.StatusResets = func(_ *resource.Env, d, old *appsv1.Deployment) { d.Labels = old.Labels }, []string{"metadata.labels"}
	s := registrytest.Start(t, d)
	s.Patch("apply", aSet+"?fieldManager=ann&force=true", setBody).Want(http.StatusCreated)
	s.Patch("apply", aSet+"/status?fieldManager=bob&force=true", setBody).Want(http.StatusOK)
	got := s.Do(http.MethodGet, aSet, nil)
	owned := map[string]map[string]any{}
	for _, entry := range got.Object().GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			var fields map[string]any
			if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
				t.Fatal(err)
			}
			owned[entry.Manager] = fields
		}
	}
	if ann := owned["ann"]; ann["f:status"] != nil || ann["f:spec"] == nil || ann["f:metadata"] == nil {
		t.Errorf("the manager that applied the object owns %v", ann)
	}
	if bob := owned["bob"]; bob["f:status"] == nil || bob["f:spec"] != nil || bob["f:metadata"] != nil {
		t.Errorf("the manager that applied the status owns %v", bob)
	}
}

func TestGenerationCountsChangesOutsideMetadataAndStatus(t *testing.T) {
	s := startSet(t)
	for _, test := range []struct {
		rule, path, patch string
		want              float64
	}{
		{"a new object has 1, whatever the client says", aSet, `{metadata: {generation: 12}}`, 1},
		{"labels do not count", aSet, `{metadata: {labels: {b: c}}}`, 1},
		{"a status does not count", aSet + "/status", `{status: {replicas: 8}}`, 1},
		{"a change of the spec counts", aSet, `{spec: {replicas: 2}}`, 2},
		{"the same spec again does not", aSet, `{spec: {replicas: 2}}`, 2},
		{"a lower generation from the client is ignored", aSet, `{metadata: {generation: 1}, spec: {paused: false}}`, 3},
		{"a change of scale counts", aSet + "/scale", `{spec: {replicas: 4}}`, 4},
	} {
		s.Patch("merge", test.path, test.patch).Want(http.StatusOK)
		if got := s.Do(http.MethodGet, aSet, nil).Field("metadata", "generation"); got != test.want {
			t.Errorf("%s: it is %v, want %v", test.rule, got, test.want)
		}
	}
}

func TestAKindWithoutGenerationHasNone(t *testing.T) {
	d := set()
	d.Generation = false
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	if got := s.Patch("merge", aSet, `{spec: {replicas: 2}}`).Want(http.StatusOK).Field("metadata", "generation"); got != nil {
		t.Errorf("it is %v", got)
	}
}

func TestEachValidationOfADeclarationRunsForItsOperations(t *testing.T) {
	refuse := func(path string) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath(path), "x", "no")}
	}
	d := set()
	d.NameRule = func(name string, prefix bool) []string {
		if name == "bad" {
			return []string{"is bad"}
		}
		return nil
	}
	d.Default = func(d *appsv1.Deployment) { resource.Fill(&d.Spec.RevisionHistoryLimit, 10) }
	d.PrepareCreate = func(_ context.Context, _ *resource.Env, d *appsv1.Deployment) { d.Spec.MinReadySeconds = 11 }
	d.PrepareUpdate = func(_ context.Context, _ *resource.Env, d, old *appsv1.Deployment) {
		d.Spec.MinReadySeconds = old.Spec.MinReadySeconds + 1
	}
	d.Validate = func(d *appsv1.Deployment) field.ErrorList {
		if d.Labels["never"] != "" {
			return refuse("never")
		}
		return nil
	}
	d.ValidateCreate = func(d *appsv1.Deployment) field.ErrorList {
		if d.Labels["later"] != "" {
			return refuse("later")
		}
		return nil
	}
	d.ValidateUpdate = func(d, old *appsv1.Deployment) field.ErrorList {
		if d.Labels["fixed"] != old.Labels["fixed"] {
			return refuse("fixed")
		}
		return nil
	}
	d.ValidateStatus = func(d, _ *appsv1.Deployment) field.ErrorList {
		if d.Status.Replicas == 13 {
			return refuse("unlucky")
		}
		return nil
	}
	d.Warn = func(d, old *appsv1.Deployment) []string {
		if old == nil {
			return []string{"created"}
		}
		return []string{"updated"}
	}
	s := registrytest.Start(t, d)

	s.Do(http.MethodPost, sets, `{metadata: {name: bad}}`).Want(http.StatusUnprocessableEntity, "metadata.name", "is bad")
	s.Do(http.MethodPost, sets, `{metadata: {name: a, labels: {never: x}}}`).Want(http.StatusUnprocessableEntity, "never: Invalid value")
	s.Do(http.MethodPost, sets, `{metadata: {name: a, labels: {later: x}}}`).Want(http.StatusUnprocessableEntity, "later: Invalid value")
	s.Do(http.MethodPost, sets, `{metadata: {name: a, labels: {"not/a/label": x}}}`).Want(http.StatusUnprocessableEntity, "metadata.labels")
	created := s.Do(http.MethodPost, sets, `{metadata: {name: a, labels: {fixed: x}}}`).Want(http.StatusCreated)
	if created.Header.Get("Warning") != `299 - "created"` {
		t.Errorf("warnings of a creation: %v", created.Header["Warning"])
	}
	if created.Field("spec", "revisionHistoryLimit") != float64(10) || created.Field("spec", "minReadySeconds") != float64(11) {
		t.Errorf("created: %s", created.Body)
	}

	s.Patch("merge", aSet, `{metadata: {labels: {never: x}}}`).Want(http.StatusUnprocessableEntity, "never: Invalid value")
	s.Patch("merge", aSet, `{metadata: {labels: {fixed: z}}}`).Want(http.StatusUnprocessableEntity, "fixed: Invalid value")
	s.Do(http.MethodPut, aSet, `{metadata: {name: a, uid: other, labels: {fixed: x}}}`).Want(http.StatusConflict, "UID in precondition")
	updated := s.Patch("merge", aSet, `{metadata: {labels: {later: x}}}`).Want(http.StatusOK)
	if updated.Header.Get("Warning") != `299 - "updated"` {
		t.Errorf("warnings of an update: %v", updated.Header["Warning"])
	}
	if updated.Field("spec", "minReadySeconds") != float64(12) {
		t.Errorf("updated: %s", updated.Body)
	}

	s.Patch("merge", aSet+"/status", `{status: {replicas: 13}}`).Want(http.StatusUnprocessableEntity, "unlucky: Invalid value")
	status := s.Patch("merge", aSet+"/status", `{metadata: {labels: {never: x}}}`).Want(http.StatusOK)
	if len(status.Header["Warning"]) > 0 {
		t.Errorf("warnings of a status: %v", status.Header["Warning"])
	}
}

func TestAPutOfAKindThatRequiresAVersionMustNameOne(t *testing.T) {
	d := set()
	d.RequireVersion = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	s.Do(http.MethodPut, aSet, setBody).Want(http.StatusUnprocessableEntity, "metadata.resourceVersion")
	current := s.Do(http.MethodGet, aSet, nil).Object()
	s.Do(http.MethodPut, aSet, current.Object).Want(http.StatusOK)
	s.Patch("merge", aSet, `{spec: {replicas: 2}}`).Want(http.StatusOK)
	s.Do(http.MethodPut, aSet, current.Object).Want(http.StatusConflict, "the object has been modified")
}

func TestAPutOfADeviceTaintRuleNamesAVersionInV1Only(t *testing.T) {
	s := registrytest.Start(t, devices.Kinds()...)
	const rule = `{metadata: {name: a}, spec: {taint: {key: example.com/a, effect: NoSchedule}}}`
	at := func(version string) string { return "/apis/resource.k8s.io/" + version + "/devicetaintrules" }
	s.Do(http.MethodPost, at("v1"), rule).Want(http.StatusCreated)
	for _, path := range []string{"/a", "/a/status"} {
		s.Do(http.MethodPut, at("v1")+path, rule).Want(http.StatusUnprocessableEntity, "metadata.resourceVersion")
		s.Do(http.MethodPut, at("v1beta2")+path, rule).Want(http.StatusOK)
		s.Do(http.MethodPut, at("v1alpha3")+path, rule).Want(http.StatusOK)
	}
}

func TestAViewChangesOnlyWhatItsPrepareAllows(t *testing.T) {
	d := set()
	d.Views = []resource.View[*appsv1.Deployment]{
		{
			Name: "finalize", NoPatch: true,
			Prepare: func(_ *resource.Env, d, old *appsv1.Deployment) { d.Status = old.Status },
			Validate: func(d, _ *appsv1.Deployment) field.ErrorList {
				if d.Spec.MinReadySeconds > 2 {
					return field.ErrorList{field.Invalid(field.NewPath("spec", "minReadySeconds"), 3, "too much")}
				}
				return nil
			},
			Resets: []string{"status"},
		},
		{Name: "resize"},
	}
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	body := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {minReadySeconds: %d}, status: {replicas: 9}}`

	got := s.Do(http.MethodPut, aSet+"/finalize", fmt.Sprintf(body, 2)).Want(http.StatusOK)
	if got.Field("spec", "minReadySeconds") != float64(2) || got.Field("status", "replicas") != nil || got.Field("metadata", "generation") != float64(2) {
		t.Errorf("got %s", got.Body)
	}
	s.Do(http.MethodPut, aSet+"/finalize", fmt.Sprintf(body, 3)).Want(http.StatusUnprocessableEntity, "spec.minReadySeconds", "too much")
	s.Do(http.MethodPut, sets+"/b/finalize", fmt.Sprintf(body, 1)).Want(http.StatusBadRequest, "does not match")

	s.Do(http.MethodGet, aSet+"/finalize", nil).Want(http.StatusMethodNotAllowed)
	s.Patch("merge", aSet+"/finalize", `{}`).Want(http.StatusMethodNotAllowed)
	s.Do(http.MethodGet, aSet+"/resize", nil).Want(http.StatusOK)
	s.Patch("merge", aSet+"/resize", `{spec: {minReadySeconds: 1}}`).Want(http.StatusOK)
}

func TestACreateThatNamesAVersionIsABadRequest(t *testing.T) {
	startSet(t).Do(http.MethodPost, sets, `{metadata: {name: b, resourceVersion: "5"}}`).Want(http.StatusBadRequest, "resourceVersion should not be set")
}

func TestAPatchWithAnInvalidDirectiveIsABadRequest(t *testing.T) {
	startSet(t).Patch("strategic-merge", aSet, `{spec: {$patch: bogus}}`).Want(http.StatusBadRequest, "unknown patch type: bogus")
}
