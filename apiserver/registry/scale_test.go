package registry_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const aScale = aSet + "/scale"

func TestScaleShowsSpecStatusAndSelector(t *testing.T) {
	s := startSet(t)
	s.Patch("merge", aSet+"/status", `{status: {replicas: 3}}`).Want(http.StatusOK)
	scale := s.Do(http.MethodGet, aScale, nil).Want(http.StatusOK, `"kind":"Scale","apiVersion":"autoscaling/v1"`)
	if scale.Field("spec", "replicas") != float64(1) || scale.Field("status", "replicas") != float64(3) || scale.Field("status", "selector") != "app=a" {
		t.Errorf("got %s", scale.Body)
	}
	obj := s.Do(http.MethodGet, aSet, nil).Object()
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "name", "namespace"} {
		if got, want := scale.Field("metadata", name), obj.Object["metadata"].(map[string]any)[name]; got != want {
			t.Errorf("%s is %v, the object's %v", name, got, want)
		}
	}
	s.Do(http.MethodGet, sets+"/none/scale", nil).Want(http.StatusNotFound, `deployments.apps \"none\" not found`)
}

func TestScaleOfAnInvalidSelectorIsRefused(t *testing.T) {
	s := registrytest.Start(t, set())
	s.Do(http.MethodPost, sets, `{metadata: {name: a}, spec: {selector: {matchExpressions: [{key: a, operator: Near}]}}}`).Want(http.StatusCreated)
	s.Do(http.MethodGet, aScale, nil).Want(http.StatusBadRequest, "cannot read the scale of a", `Near\" is not a valid label selector operator`)
}

func TestScaleWritesOnlyReplicas(t *testing.T) {
	s := startSet(t)
	got := s.Do(http.MethodPut, aScale, `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a, labels: {b: c}}, spec: {replicas: 5}, status: {replicas: 9}}`).Want(http.StatusOK)
	if got.Field("spec", "replicas") != float64(5) || got.Field("status", "replicas") != float64(0) {
		t.Errorf("answered %s", got.Body)
	}
	obj := s.Do(http.MethodGet, aSet, nil)
	if obj.Field("spec", "replicas") != float64(5) || obj.Field("spec", "paused") != true || obj.Field("metadata", "labels", "b") != nil {
		t.Errorf("the object is %s", obj.Body)
	}
	s.Patch("merge", aScale, `{spec: {replicas: 0}}`).Want(http.StatusOK)
	if got := s.Do(http.MethodGet, aSet, nil).Field("spec", "replicas"); got != float64(0) {
		t.Errorf("replicas are %v", got)
	}
}

func TestScaleRefuses(t *testing.T) {
	s := startSet(t)
	stale := s.Do(http.MethodGet, aScale, nil).Object()
	s.Patch("merge", aScale, `{spec: {replicas: 2}}`).Want(http.StatusOK)
	const body = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: %s%s}, spec: {replicas: %d}}`
	for _, test := range []struct {
		rule, path string
		body       any
		code       int
		want       string
	}{
		{"a stale version", aScale, stale.Object, http.StatusConflict, "the object has been modified"},
		{"negative replicas", aScale, fmt.Sprintf(body, "a", "", -1), http.StatusUnprocessableEntity, "spec.replicas: Invalid value: -1"},
		{"another object's name", aScale, fmt.Sprintf(body, "b", "", 1), http.StatusBadRequest, "does not match"},
		{"another object's UID", aScale, fmt.Sprintf(body, "a", ", uid: other", 1), http.StatusConflict, "UID"},
		{"an object that does not exist", sets + "/b/scale", fmt.Sprintf(body, "b", "", 1), http.StatusNotFound, "not found"},
		{"the object in place of its scale", aScale, setBody, http.StatusBadRequest, "Deployment"},
	} {
		t.Run(test.rule, func(t *testing.T) { s.Do(http.MethodPut, test.path, test.body).Want(test.code, test.want) })
	}
	for kind, patch := range map[string]any{
		"merge": `{metadata: {uid: other}, spec: {replicas: 3}}`,
		"json":  []map[string]any{{"op": "replace", "path": "/metadata/uid", "value": "other"}, {"op": "replace", "path": "/spec/replicas", "value": 3}},
		"apply": fmt.Sprintf(body, "a", ", uid: other", 3),
	} {
		t.Run("another object's UID in a patch: "+kind, func(t *testing.T) {
			path := aScale
			if kind == "apply" {
				path += "?fieldManager=m&force=true"
			}
			s.Patch(kind, path, patch).Want(http.StatusConflict, "Precondition failed: UID in precondition: other, UID in object meta: ")
		})
	}
	if got := s.Do(http.MethodGet, aSet, nil).Field("spec", "replicas"); got != float64(2) {
		t.Errorf("replicas are %v", got)
	}
}

func TestAnObjectIsNotCreatedByItsScale(t *testing.T) {
	d := set()
	d.CreateOnUpdate = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPut, aScale, `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 1}}`).
		Want(http.StatusNotFound, `deployments.apps \"a\" not found`)
}

func TestScaleDryRunChangesNothing(t *testing.T) {
	s := startSet(t)
	if got := s.Patch("merge", aScale+"?dryRun=All", `{spec: {replicas: 4}}`).Want(http.StatusOK).Field("spec", "replicas"); got != float64(4) {
		t.Errorf("answered %v", got)
	}
	if got := s.Do(http.MethodGet, aSet, nil).Field("spec", "replicas"); got != float64(1) {
		t.Errorf("stored %v", got)
	}
}

func TestTheManagerThatScalesOwnsTheObjectsReplicas(t *testing.T) {
	s := startSet(t)
	s.Patch("apply", aScale+"?fieldManager=autoscaler&force=true", `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 6}}`).Want(http.StatusOK)
	for _, entry := range s.Do(http.MethodGet, aSet, nil).Object().GetManagedFields() {
		owned := entry.FieldsV1.GetRawString()
		switch entry.Manager {
		case "autoscaler":
			if owned != `{"f:spec":{"f:replicas":{}}}` || entry.APIVersion != "apps/v1" || entry.Subresource != "scale" {
				t.Errorf("the autoscaler owns %s of %s through %q", owned, entry.APIVersion, entry.Subresource)
			}
		default:
			if s := owned; len(s) == 0 || contains(s, "f:replicas") {
				t.Errorf("%s still owns %s", entry.Manager, owned)
			}
		}
	}
	s.Patch("apply", aSet+"?fieldManager=ann", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 1}}`).
		Want(http.StatusConflict, "autoscaler", ".spec.replicas")
}

func TestScaleRunsTheHooksOfTheObject(t *testing.T) {
	var finished []bool
	d := set()
	d.BeginUpdate = func(context.Context, *resource.Env, *appsv1.Deployment, *appsv1.Deployment, bool) (func(bool), error) {
		return func(ok bool) { finished = append(finished, ok) }, nil
	}
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	s.Patch("merge", aScale, `{spec: {replicas: 4}}`).Want(http.StatusOK)
	if len(finished) != 1 || !finished[0] {
		t.Errorf("the hook was finished with %v", finished)
	}
}

func TestScaleHasATableOfItsOwn(t *testing.T) {
	s := startSet(t)
	s.Patch("merge", aSet+"/status", `{status: {replicas: 3}}`).Want(http.StatusOK)
	var table metav1.Table
	s.Do(http.MethodGet, aScale, nil, "Accept", asTable).Want(http.StatusOK).Into(&table)
	if len(table.Rows) != 1 || len(table.ColumnDefinitions) != 4 {
		t.Fatalf("got %+v", table)
	}
	if got := fmt.Sprint(table.Rows[0].Cells[:3]); got != "[a 1 3]" {
		t.Errorf("the row is %s", got)
	}
}
