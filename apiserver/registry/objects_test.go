package registry_test

import (
	"errors"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

func objectsOfSets(s *registrytest.Stack) resource.Objects {
	return s.Env.Objects(schema.GroupResource{Group: "apps", Resource: "deployments"})
}

func TestObjectsUpdateRetriesAfterAConflict(t *testing.T) {
	s := startSet(t)
	calls := 0
	_, err := objectsOfSets(s).Update(t.Context(), "default", "a", false, func(obj runtime.Object) (runtime.Object, error) {
		if calls++; calls == 1 {
			s.Patch("merge", aSet, `{spec: {minReadySeconds: 3}}`).Want(http.StatusOK)
		}
		*obj.(*appsv1.Deployment).Spec.Replicas = 8
		return obj, nil
	})
	if err != nil || calls != 2 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	got := s.Do(http.MethodGet, aSet, nil)
	if got.Field("spec", "replicas") != float64(8) || got.Field("spec", "minReadySeconds") != float64(3) {
		t.Errorf("one of the changes is lost: %s", got.Body)
	}
}

func TestObjectsUpdateMayChangeWhatAnyEndpointMay(t *testing.T) {
	d := set()
	d.ValidateUpdate = func(_, _ *appsv1.Deployment) field.ErrorList {
		return field.ErrorList{field.Forbidden(field.NewPath("spec"), "clients may not change it")}
	}
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	_, err := objectsOfSets(s).Update(t.Context(), "default", "a", false, func(obj runtime.Object) (runtime.Object, error) {
		d := obj.(*appsv1.Deployment)
		*d.Spec.Replicas, d.Status.Replicas, d.Generation = 4, 6, 99
		return d, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got := s.Do(http.MethodGet, aSet, nil)
	if got.Field("spec", "replicas") != float64(4) || got.Field("status", "replicas") != float64(6) || got.Field("metadata", "generation") != float64(1) {
		t.Errorf("got %s, want what the server wrote, which is no new generation", got.Body)
	}
}

func TestObjectsUpdateRefuses(t *testing.T) {
	d := set()
	d.CreateOnUpdate = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, setBody).Want(http.StatusCreated)
	objects := objectsOfSets(s)
	keep := func(obj runtime.Object) (runtime.Object, error) { return obj, nil }

	if _, err := objects.Update(t.Context(), "default", "none", false, keep); !apierrors.IsNotFound(err) {
		t.Errorf("an object that does not exist: %v", err)
	}
	no := errors.New("no")
	if _, err := objects.Update(t.Context(), "default", "a", false, func(runtime.Object) (runtime.Object, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("a change that fails: %v", err)
	}
	if _, err := objects.Update(t.Context(), "default", "a", false, func(obj runtime.Object) (runtime.Object, error) {
		obj.(*appsv1.Deployment).Labels = map[string]string{"not/a/label": ""}
		return obj, nil
	}); !apierrors.IsInvalid(err) {
		t.Errorf("bad metadata: %v", err)
	}
	if _, err := objects.Update(t.Context(), "default", "a", true, func(obj runtime.Object) (runtime.Object, error) {
		*obj.(*appsv1.Deployment).Spec.Replicas = 5
		return obj, nil
	}); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	if got := s.Do(http.MethodGet, aSet, nil).Field("spec", "replicas"); got != float64(1) {
		t.Errorf("the replicas became %v", got)
	}
}

func TestObjectsGetListAndDelete(t *testing.T) {
	s := startSet(t)
	s.Do(http.MethodPost, "/apis/apps/v1/namespaces/other/deployments", `{metadata: {name: b}}`).Want(http.StatusCreated)
	objects := objectsOfSets(s)
	if obj, err := objects.Get(t.Context(), "default", "a"); err != nil || obj.(*appsv1.Deployment).Name != "a" {
		t.Errorf("got %v, %v", obj, err)
	}
	if _, err := objects.Get(t.Context(), "other", "a"); !apierrors.IsNotFound(err) || err.Error() != `deployments.apps "a" not found` {
		t.Errorf("from another namespace: %v", err)
	}
	for _, test := range []struct {
		namespace string
		selector  labels.Selector
		want      int
	}{
		{"", labels.Everything(), 2}, {"default", labels.Everything(), 1}, {"none", labels.Everything(), 0},
		{"", labels.SelectorFromSet(labels.Set{"app": "a"}), 1}, {"other", labels.SelectorFromSet(labels.Set{"app": "a"}), 0},
	} {
		if list, err := objects.List(t.Context(), test.namespace, test.selector); err != nil || len(list) != test.want {
			t.Errorf("%q, %v: %d objects, %v; want %d", test.namespace, test.selector, len(list), err, test.want)
		}
		// The list has waited for the cache.
		if list, err := objects.ListCached(t.Context(), test.namespace, test.selector); err != nil || len(list) != test.want {
			t.Errorf("%q, %v: %d cached objects, %v; want %d", test.namespace, test.selector, len(list), err, test.want)
		}
	}
	wrong := metav1.NewUIDPreconditions("other")
	if err := objects.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{Preconditions: wrong}); !apierrors.IsConflict(err) {
		t.Errorf("with another UID: %v", err)
	}
	if err := objects.Delete(t.Context(), "default", "a", &metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	s.Do(http.MethodGet, aSet, nil).Want(http.StatusNotFound)
}

func TestCachedFindsObjectsWithAndWithoutAWatchCache(t *testing.T) {
	s := startSet(t)
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for _, cache := range []string{"no watch cache", "a watch cache"} {
		if obj, err := s.Registry.Cached(t.Context(), gr, "default", "a"); err != nil || obj.(*appsv1.Deployment).Name != "a" {
			t.Errorf("%s: %v, %v", cache, obj, err)
		}
		if _, err := s.Registry.Cached(t.Context(), gr, "other", "a"); !apierrors.IsNotFound(err) || err.Error() != `deployments.apps "a" not found` {
			t.Errorf("%s, another namespace: %v", cache, err)
		}
		s.Do(http.MethodGet, sets, nil).Want(http.StatusOK) // opens the watch cache
	}
	if _, err := s.Registry.Cached(t.Context(), schema.GroupResource{Resource: "none"}, "default", "a"); err == nil {
		t.Error("an unknown type has an object")
	}
}

func TestDeleteIfDeletesWhatIsAllowed(t *testing.T) {
	s := startSet(t)
	gr, no := schema.GroupResource{Group: "apps", Resource: "deployments"}, errors.New("no")
	remove := func(name string, err error) error {
		return s.Registry.DeleteIf(t.Context(), gr, "default", name, func(obj runtime.Object) error {
			if got := obj.(*appsv1.Deployment).Name; got != name {
				t.Errorf("asked for %s, not %s", got, name)
			}
			return err
		})
	}
	if err := remove("none", nil); !apierrors.IsNotFound(err) {
		t.Errorf("an object that does not exist: %v", err)
	}
	if err := remove("a", no); !errors.Is(err, no) {
		t.Errorf("an object that must stay: %v", err)
	}
	s.Do(http.MethodGet, aSet, nil).Want(http.StatusOK)
	if err := remove("a", nil); err != nil {
		t.Error(err)
	}
	s.Do(http.MethodGet, aSet, nil).Want(http.StatusNotFound)
}
