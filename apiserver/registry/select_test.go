package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/registry/registrytest"
)

// placed declares a kind that is watched by the value of a label.
func placed() resource.Type[*appsv1.Deployment] {
	d := set()
	d.Fields = map[string]func(*appsv1.Deployment) string{
		"spec.place":  func(d *appsv1.Deployment) string { return d.Labels["place"] },
		"spec.paused": func(d *appsv1.Deployment) string { return fmt.Sprint(d.Spec.Paused) },
	}
	d.WatchField = "spec.place"
	return d
}

func at(name, place string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, labels: {place: %s}}}`, name, place)
}

// names are the names in a list, in order.
func names(t *testing.T, answer *registrytest.Answer) string {
	t.Helper()
	list, err := answer.Want(http.StatusOK).Object().ToList()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, item := range list.Items {
		all = append(all, item.GetNamespace()+"/"+item.GetName())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestFieldSelectorsSelectByTheFieldsOfTheDeclaration(t *testing.T) {
	s := registrytest.Start(t, placed())
	s.Do(http.MethodPost, sets, at("a", "here")).Want(http.StatusCreated)
	s.Do(http.MethodPost, sets, at("b", "there")).Want(http.StatusCreated)
	s.Do(http.MethodPost, "/apis/apps/v1/namespaces/other/deployments", at("a", "here")).Want(http.StatusCreated)
	s.Do(http.MethodPost, sets, at("nowhere", "\"\"")).Want(http.StatusCreated)
	const everywhere = "/apis/apps/v1/deployments"
	for _, test := range []struct{ path, selector, want string }{
		{sets, "", "default/a default/b default/nowhere"},
		{sets, "metadata.name=a", "default/a"},
		{everywhere, "metadata.name=a", "default/a other/a"},
		{everywhere, "metadata.namespace=other", "other/a"},
		{everywhere, "metadata.namespace!=other", "default/a default/b default/nowhere"},
		{everywhere, "spec.place=", "default/nowhere"},
		{everywhere, "spec.place!=,metadata.namespace=default", "default/a default/b"},
		{everywhere, "spec.place=here", "default/a other/a"},
		{everywhere, "spec.place!=here", "default/b default/nowhere"},
		{everywhere, "spec.place=here,metadata.namespace=default", "default/a"},
		{everywhere, "spec.paused=true", ""},
		{everywhere, "spec.paused=false,metadata.namespace=other", "other/a"},
		{everywhere, "metadata.name=a,metadata.namespace=none", ""},
	} {
		if got := names(t, s.Do(http.MethodGet, test.path+"?fieldSelector="+test.selector, nil)); got != test.want {
			t.Errorf("%s of %s are %q, want %q", test.selector, test.path, got, test.want)
		}
	}
	s.Do(http.MethodGet, sets+"?fieldSelector=spec.replicas=1", nil).
		Want(http.StatusBadRequest, "field label not supported: spec.replicas; use metadata.name, metadata.namespace, spec.paused, spec.place")
}

// watch starts a watch; the function it returns waits for the next event.
func watch(t *testing.T, s *registrytest.Stack, path string) func() string {
	t.Helper()
	resp := s.Send(http.MethodGet, path, nil)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the watch answers %s", resp.Status)
	}
	events := json.NewDecoder(resp.Body)
	return func() string {
		t.Helper()
		var event struct {
			Type   string
			Object struct {
				Metadata struct {
					Name   string
					Labels map[string]string
				}
			}
		}
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		return event.Type + " " + event.Object.Metadata.Name
	}
}

func TestAWatchByTheWatchFieldReportsObjectsThatEnterAndLeaveItsSelection(t *testing.T) {
	s := registrytest.Start(t, placed())
	s.Do(http.MethodPost, sets, at("a", "here")).Want(http.StatusCreated)
	version := s.Do(http.MethodGet, sets, nil).Object().GetResourceVersion()
	from := "?watch=1&resourceVersion=" + version
	here := watch(t, s, sets+from+"&fieldSelector=spec.place=here")
	there := watch(t, s, sets+from+"&fieldSelector=spec.place=there")
	all := watch(t, s, sets+from)

	s.Do(http.MethodPost, sets, at("b", "there")).Want(http.StatusCreated)
	s.Patch("merge", aSet, `{metadata: {labels: {place: there}}}`).Want(http.StatusOK)
	s.Patch("merge", aSet, `{spec: {replicas: 3}}`).Want(http.StatusOK)
	s.Patch("merge", aSet, `{metadata: {labels: {place: here}}}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, aSet, nil).Want(http.StatusOK)

	for _, watcher := range []struct {
		of   string
		next func() string
		want []string
	}{
		{"here", here, []string{"DELETED a", "ADDED a", "DELETED a"}},
		{"there", there, []string{"ADDED b", "ADDED a", "MODIFIED a", "DELETED a"}},
		{"everywhere", all, []string{"ADDED b", "MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"}},
	} {
		for i, want := range watcher.want {
			if got := watcher.next(); got != want {
				t.Fatalf("event %d %s is %q, want %q", i, watcher.of, got, want)
			}
		}
	}
}

func TestAWatchOfOneObjectReportsOnlyThatObject(t *testing.T) {
	s := registrytest.Start(t, set())
	version := s.Do(http.MethodGet, sets, nil).Object().GetResourceVersion()
	next := watch(t, s, sets+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+version)
	s.Do(http.MethodPost, sets, at("b", "x")).Want(http.StatusCreated)
	s.Do(http.MethodPost, sets, at("a", "x")).Want(http.StatusCreated)
	s.Patch("merge", sets+"/b", `{spec: {replicas: 2}}`).Want(http.StatusOK)
	s.Do(http.MethodDelete, aSet, nil).Want(http.StatusOK)
	for _, want := range []string{"ADDED a", "DELETED a"} {
		if got := next(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAKindInTwoGroupsHasOneStore(t *testing.T) {
	var events resource.Declaration
	for _, d := range core.Kinds() {
		if d.Kind().Name == "events" {
			events = d
		}
	}
	s := registrytest.Start(t, events)
	const (
		asCore   = "/api/v1/namespaces/default/events"
		asEvents = "/apis/events.k8s.io/v1/namespaces/default/events"
	)
	s.Do(http.MethodPost, asCore, corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: "a", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"}, Reason: "Started", Message: "hello",
	}).Want(http.StatusCreated, `"apiVersion":"v1"`)
	got := s.Do(http.MethodGet, asEvents+"/a", nil).Want(http.StatusOK, `"apiVersion":"events.k8s.io/v1"`)
	if got.Field("regarding", "name") != "p" || got.Field("note") != "hello" {
		t.Errorf("got %s", got.Body)
	}
	if got := names(t, s.Do(http.MethodGet, asEvents+"?fieldSelector=regarding.name=p", nil)); got != "default/a" {
		t.Errorf("events.k8s.io selects %q", got)
	}
	if got := names(t, s.Do(http.MethodGet, asCore+"?fieldSelector=involvedObject.name=p", nil)); got != "default/a" {
		t.Errorf("core selects %q", got)
	}
	version := s.Do(http.MethodGet, asEvents, nil).Object().GetResourceVersion()
	next := watch(t, s, asEvents+"?watch=1&resourceVersion="+version)
	s.Patch("merge", asCore+"/a", `{count: 2}`).Want(http.StatusOK)
	if got := next(); got != "MODIFIED a" {
		t.Errorf("watched %q", got)
	}
	s.Do(http.MethodDelete, asEvents+"/a", nil).Want(http.StatusOK)
	s.Do(http.MethodGet, asCore+"/a", nil).Want(http.StatusNotFound)

	stored, err := s.Backend.Client().Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range stored.Kvs {
		t.Errorf("left in etcd: %s", kv.Key)
	}
}
