package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

const (
	maps = "/api/v1/namespaces/default/configmaps"
	aMap = maps + "/a"
)

// hookCalls are those of a kind's hooks, in order.
type hookCalls struct {
	mu      sync.Mutex
	entries []string
}

func (d *hookCalls) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, fmt.Sprintf(format, args...))
}

func (d *hookCalls) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries := strings.Join(d.entries, "; ")
	d.entries = nil
	return entries
}

// hooked declares a kind whose hooks record their calls. Objects are refused
// by the part of the server that their label "fail" names.
func hooked(d *hookCalls) resource.Type[*corev1.ConfigMap] {
	begin := func(what string, c *corev1.ConfigMap, dryRun bool) (func(bool), error) {
		d.write("begin %s %s %v", what, c.Name, dryRun)
		if c.Labels["fail"] == "hook" {
			return nil, errors.New("the hook failed")
		}
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data["set"] = what
		return func(ok bool) { d.write("finish %s %s %v", what, c.Name, ok) }, nil
	}
	return resource.Type[*corev1.ConfigMap]{
		Name: "configmaps", Namespaced: true, CreateOnUpdate: true,
		Validate: func(c *corev1.ConfigMap) field.ErrorList {
			if c.Labels["fail"] == "validation" {
				return field.ErrorList{field.Forbidden(field.NewPath("metadata", "labels"), "fails")}
			}
			return nil
		},
		BeginCreate: func(_ context.Context, _ *resource.Env, c *corev1.ConfigMap, dryRun bool) (func(bool), error) {
			return begin("create", c, dryRun)
		},
		BeginUpdate: func(_ context.Context, _ *resource.Env, c, old *corev1.ConfigMap, dryRun bool) (func(bool), error) {
			return begin("update after "+old.Data["set"], c, dryRun)
		},
		AfterDelete: func(_ context.Context, _ *resource.Env, c *corev1.ConfigMap) { d.write("after delete %s", c.Name) },
	}
}

func TestHooksSurroundTheWrite(t *testing.T) {
	d := &hookCalls{}
	s := registrytest.StartWith(t, refuser{"protected"}, hooked(d))
	s.Do(http.MethodPost, maps, `{metadata: {name: old}}`).Want(http.StatusCreated)
	d.take()
	for _, test := range []struct {
		rule, method, path, body string
		code                     int
		want                     string
	}{
		{"a creation", http.MethodPost, maps, `{metadata: {name: a}}`, http.StatusCreated, "begin create a false; finish create a true"},
		{"a creation of what exists", http.MethodPost, maps, `{metadata: {name: a}}`, http.StatusConflict, "begin create a false; finish create a false"},
		{"a creation that is invalid", http.MethodPost, maps, `{metadata: {name: b, labels: {fail: validation}}}`, http.StatusUnprocessableEntity, ""},
		{"a creation with bad metadata", http.MethodPost, maps, `{metadata: {name: B}}`, http.StatusUnprocessableEntity, "begin create B false; finish create B false"},
		{"a creation that admission refuses", http.MethodPost, maps, `{metadata: {name: protected}}`, http.StatusForbidden,
			"begin create protected false; finish create protected false"},
		{"a creation that the hook refuses", http.MethodPost, maps, `{metadata: {name: b, labels: {fail: hook}}}`, http.StatusInternalServerError, "begin create b false"},
		{"a creation's dry run", http.MethodPost, maps + "?dryRun=All", `{metadata: {name: b}}`, http.StatusCreated, "begin create b true; finish create b true"},
		{"a PUT that creates", http.MethodPut, maps + "/p", `{metadata: {name: p}}`, http.StatusCreated, "begin create p false; finish create p true"},
		{"an update", http.MethodPut, aMap, `{metadata: {name: a}}`, http.StatusOK, "begin update after create a false; finish update after create a true"},
		{"an update that is invalid", http.MethodPut, aMap, `{metadata: {name: a, labels: {fail: validation}}}`, http.StatusUnprocessableEntity, ""},
		{"an update of an old version", http.MethodPut, aMap, `{metadata: {name: a, resourceVersion: "1"}}`, http.StatusConflict, ""},
		{"an update's dry run", http.MethodPut, aMap + "?dryRun=All", `{metadata: {name: a}, data: {x: "y"}}`, http.StatusOK,
			"begin update after update after create a true; finish update after update after create a true"},
		{"a deletion's dry run", http.MethodDelete, maps + "/old?dryRun=All", ``, http.StatusOK, ""},
		{"a deletion", http.MethodDelete, maps + "/old", ``, http.StatusOK, "after delete old"},
		{"a deletion of what is gone", http.MethodDelete, maps + "/old", ``, http.StatusNotFound, ""},
		{"a deletion that a finalizer delays", http.MethodPost, maps, `{metadata: {name: held, finalizers: [x/y]}}`, http.StatusCreated,
			"begin create held false; finish create held true"},
		{"... calls no hook yet", http.MethodDelete, maps + "/held", ``, http.StatusOK, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			var body any
			if test.body != "" {
				body = test.body
			}
			answer := s.Do(test.method, test.path, body)
			if got := d.take(); answer.Code != test.code || got != test.want {
				t.Errorf("answered %d after %q,\nwant     %d after %q: %s", answer.Code, got, test.code, test.want, answer.Body)
			}
		})
	}
	s.Patch("merge", maps+"/held", `{metadata: {finalizers: null}}`).Want(http.StatusOK)
	if got := d.take(); got != "begin update after create held false; after delete held; finish update after create held true" {
		t.Errorf("removing the last finalizer: %q", got)
	}
}

func TestChangesOfAHookAreStored(t *testing.T) {
	s := registrytest.Start(t, hooked(&hookCalls{}))
	s.Do(http.MethodPost, maps, `{metadata: {name: a}}`).Want(http.StatusCreated)
	if got := s.Do(http.MethodGet, aMap, nil).Field("data", "set"); got != "create" {
		t.Errorf("stored %v", got)
	}
}

func TestDeleteCollectionCallsTheHookForEveryObject(t *testing.T) {
	d := &hookCalls{}
	s := registrytest.Start(t, hooked(d))
	for _, name := range []string{"a", "b"} {
		s.Do(http.MethodPost, maps, `{metadata: {name: `+name+`}}`).Want(http.StatusCreated)
	}
	d.take()
	s.Do(http.MethodDelete, maps+"?labelSelector=none", nil).Want(http.StatusOK)
	if got := d.take(); got != "" {
		t.Errorf("nothing was selected: %q", got)
	}
	s.Do(http.MethodDelete, maps, nil).Want(http.StatusOK)
	if got := d.take(); got != "after delete a; after delete b" && got != "after delete b; after delete a" {
		t.Errorf("got %q", got)
	}
}
