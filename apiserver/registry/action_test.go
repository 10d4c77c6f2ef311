package registry_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// refuser is an admission plugin that refuses objects of a name.
type refuser struct{ name string }

func (r refuser) Handles(admission.Operation) bool { return true }

func (r refuser) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetName() == r.name {
		return admission.NewForbidden(a, fmt.Errorf("no %s of %q", a.GetOperation(), a.GetName()))
	}
	return nil
}

// calls records the arguments of actions and virtual types.
type calls []string

func (c *calls) add(namespace, name string, input runtime.Object, dryRun bool) (runtime.Object, error) {
	b := input.(*corev1.Binding)
	*c = append(*c, fmt.Sprintf("%s/%s (%s/%s %s) to %s, dry run %v", namespace, name, b.Namespace, b.Name, b.UID, b.Target.Name, dryRun))
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func (c *calls) take() string {
	got := fmt.Sprint(*c)
	*c = nil
	return got
}

func startActions(t *testing.T) (*registrytest.Stack, *calls) {
	t.Helper()
	ran := &calls{}
	d := set()
	d.Actions = []resource.Action{{
		Name:  "bind",
		Input: func() runtime.Object { return &corev1.Binding{} },
		InputVersions: []resource.InputVersion{resource.ConvertInput(func(in *policyv1beta1.Eviction, out *corev1.Binding) {
			out.ObjectMeta, out.Target.Name = in.ObjectMeta, "elsewhere"
		}, func(in *corev1.Binding, out *policyv1beta1.Eviction) { out.ObjectMeta = in.ObjectMeta })},
		Run: func(_ context.Context, _ *resource.Env, req resource.ActionRequest) (runtime.Object, error) {
			return ran.add(req.Namespace, req.Name, req.Input, req.DryRun)
		},
	}}
	return registrytest.StartWith(t, refuser{"protected"}, d, resource.Virtual[*corev1.Binding]{
		Name: "bindings", Namespaced: true,
		Run: func(_ context.Context, _ *resource.Env, b *corev1.Binding, dryRun bool) (runtime.Object, error) {
			return ran.add("", "", b, dryRun)
		},
	}), ran
}

func TestActionsRunOnTheObjectOfTheURL(t *testing.T) {
	s, ran := startActions(t)
	for _, test := range []struct {
		rule, query, meta string
		code              int
		want              string
	}{
		{"named by the URL alone", "", "", http.StatusCreated, "[default/a (default/a ) to node, dry run false]"},
		{"named the same by the body, whose UID is kept", "", "name: a, namespace: default, uid: u", http.StatusCreated, "[default/a (default/a u) to node, dry run false]"},
		{"a dry run is passed on", "?dryRun=All", "", http.StatusCreated, "[default/a (default/a ) to node, dry run true]"},
		{"another name in the body", "", "name: b", http.StatusBadRequest, "[]"},
		{"another namespace in the body", "", "namespace: other", http.StatusBadRequest, "[]"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			body := fmt.Sprintf(`{apiVersion: v1, kind: Binding, metadata: {%s}, target: {name: node}}`, test.meta)
			answer := s.Do(http.MethodPost, aSet+"/bind"+test.query, body)
			if got := ran.take(); answer.Code != test.code || got != test.want {
				t.Errorf("answered %d after %s, want %d after %s: %s", answer.Code, got, test.code, test.want, answer.Body)
			}
		})
	}
}

func TestAnActionTakesTheVersionsThatItDeclares(t *testing.T) {
	s, ran := startActions(t)
	for _, test := range []struct {
		version, kind string
		code          int
		want          string
	}{
		{"v1", "Binding", http.StatusCreated, "[default/a (default/a u) to , dry run false]"},
		{"policy/v1beta1", "Eviction", http.StatusCreated, "[default/a (default/a u) to elsewhere, dry run false]"},
		{"policy/v1beta1", "Binding", http.StatusBadRequest, "[]"},
		{"apps/v1", "Deployment", http.StatusBadRequest, "[]"},
	} {
		answer := s.Do(http.MethodPost, aSet+"/bind", fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {uid: u}}`, test.version, test.kind))
		if got := ran.take(); answer.Code != test.code || got != test.want {
			t.Errorf("%s %s: answered %d after %s, want %d after %s: %s", test.version, test.kind, answer.Code, got, test.code, test.want, answer.Body)
		}
	}
}

func TestAdmissionMayRefuseAnAction(t *testing.T) {
	s, ran := startActions(t)
	s.Do(http.MethodPost, sets+"/protected/bind", `{apiVersion: v1, kind: Binding, target: {name: node}}`).Want(http.StatusForbidden, "no CREATE")
	if got := ran.take(); got != "[]" {
		t.Errorf("it ran: %s", got)
	}
}

func TestAnActionIsNeitherReadNorUpdated(t *testing.T) {
	s, _ := startActions(t)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		s.Do(method, aSet+"/bind", nil).Want(http.StatusMethodNotAllowed)
	}
}

func TestAVirtualTypeAnswersWhatIsPosted(t *testing.T) {
	s, ran := startActions(t)
	const path = "/api/v1/namespaces/default/bindings"
	s.Do(http.MethodPost, path, `{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {name: node}}`).Want(http.StatusCreated, `"status":"Success"`)
	s.Do(http.MethodPost, path+"?dryRun=All", `{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {name: m}}`).Want(http.StatusCreated)
	if got := ran.take(); got != "[/ (default/a ) to node, dry run false / (default/a ) to m, dry run true]" {
		t.Errorf("ran %s", got)
	}
	s.Do(http.MethodPost, path, `{apiVersion: v1, kind: Binding, metadata: {name: a, namespace: other}}`).Want(http.StatusBadRequest, "namespace")
	s.Do(http.MethodPost, path, `{apiVersion: v1, kind: Binding, metadata: {name: protected}}`).Want(http.StatusForbidden)
	s.Do(http.MethodGet, path, nil).Want(http.StatusMethodNotAllowed)
	if got := ran.take(); got != "[]" {
		t.Errorf("ran %s", got)
	}
}

func TestAnActionWithAnUnregisteredInputTypeIsRefusedAtTheStart(t *testing.T) {
	d := set()
	d.Actions = []resource.Action{{Name: "bind", Input: func() runtime.Object { return &corev1.Binding{} }}}
	expectNoRegistry(t, "action bind", d)
}
