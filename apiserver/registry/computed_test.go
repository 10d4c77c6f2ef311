package registry_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// found declares a computed kind of two objects, both named a: one in
// the namespace x with the label in=x, and one in y.
func found() resource.Declaration {
	all := func() []*corev1.PodTemplate {
		var all []*corev1.PodTemplate
		for _, namespace := range []string{"x", "y"} {
			all = append(all, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"in": namespace}}})
		}
		return all
	}
	return resource.Computed[*corev1.PodTemplate]{
		Name: "podtemplates", ShortNames: []string{"pt"}, Namespaced: true,
		Columns: []resource.Column[*corev1.PodTemplate]{
			resource.Name[*corev1.PodTemplate](),
			{Name: "In", Value: func(obj *corev1.PodTemplate) any { return obj.Labels["in"] }},
		},
		Get: func(_ context.Context, _ *resource.Env, namespace, name string) (*corev1.PodTemplate, error) {
			for _, obj := range all() {
				if obj.Namespace == namespace && obj.Name == name {
					return obj, nil
				}
			}
			return nil, apierrors.NewNotFound(corev1.Resource("podtemplates"), name)
		},
		List: func(_ context.Context, _ *resource.Env, selection resource.Selection) ([]*corev1.PodTemplate, error) {
			return slices.DeleteFunc(all(), func(obj *corev1.PodTemplate) bool { return !selection.Selects(obj) }), nil
		},
	}
}

func TestComputedObjectsAreReadLikeStoredOnes(t *testing.T) {
	s := registrytest.Start(t, found())
	const in, everywhere = "/api/v1/namespaces/x/podtemplates", "/api/v1/podtemplates"
	for _, test := range []struct{ path, want string }{
		{everywhere, "x/a y/a"},
		{in, "x/a"},
		{everywhere + "?labelSelector=in%3Dy", "y/a"},
		{everywhere + "?fieldSelector=metadata.namespace%3Dx", "x/a"},
		{everywhere + "?fieldSelector=metadata.name%3Db", ""},
		{in + "?labelSelector=in%3Dy", ""},
		{everywhere + "?limit=1", "x/a y/a"},
	} {
		if got := names(t, s.Do(http.MethodGet, test.path, nil)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.path, got, test.want)
		}
	}
	if obj := s.Do(http.MethodGet, in+"/a", nil).Want(http.StatusOK).Object(); obj.GetNamespace() != "x" || obj.GetKind() != "PodTemplate" {
		t.Errorf("got %v", obj)
	}
	s.Do(http.MethodGet, in+"/b", nil).Want(http.StatusNotFound)
	s.Do(http.MethodGet, everywhere+"?fieldSelector=spec.x%3D1", nil).Want(http.StatusBadRequest)
	if body := string(s.Do(http.MethodGet, "/api/v1/namespaces/none/podtemplates", nil).Body); !contains(body, `"items":[]`) {
		t.Errorf("an empty list is %s", body)
	}
	if table := tableOf(s, everywhere); len(table.ColumnDefinitions) != 2 || len(table.Rows) != 2 || table.Rows[1].Cells[1] != "y" {
		t.Errorf("the table is %+v", table)
	}
}

func TestComputedObjectsCanOnlyBeRead(t *testing.T) {
	s := registrytest.Start(t, found())
	r := s.Groups[0].Versions[0].Resources[0]
	if !slices.Equal(r.Verbs, []string{"get", "list"}) || !slices.Equal(r.ShortNames, []string{"pt"}) || len(r.Subresources) > 0 {
		t.Errorf("discovery shows %+v", r)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		s.Do(method, "/api/v1/namespaces/x/podtemplates/a", `{}`).Want(http.StatusMethodNotAllowed)
	}
	if s.Env.Objects(corev1.Resource("podtemplates")) != nil {
		t.Error("hooks of other kinds take it for a stored kind")
	}
}
