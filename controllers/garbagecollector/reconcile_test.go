package garbagecollector

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/garbagecollector/graph"
)

var (
	ownerOfLeaf = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}
	configMaps  = discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true}
	leaf        = graph.Identity{Kind: schema.GroupKind{Kind: "ConfigMap"}, Namespace: "default", Name: "leaf", UID: "uid"}
)

func TestEveryWriteHasThePreconditionsOfItsDecision(t *testing.T) {
	refs := []graph.Reference{{Index: 0, UID: "a"}, {Index: 2, UID: "c"}}
	bound := `{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},`
	for name, c := range map[string]struct {
		action     graph.Action
		want, body string
	}{
		"delete": {
			graph.Action{Verb: graph.Delete, Policy: metav1.DeletePropagationForeground},
			"DELETE /api/v1/namespaces/default/configmaps/leaf",
			`{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"uid","resourceVersion":"7"},"propagationPolicy":"Foreground"}`,
		},
		"owners, the last first": {
			graph.Action{Verb: graph.Disown, References: refs},
			"PATCH /api/v1/namespaces/default/configmaps/leaf",
			`[` + bound + `{"op":"test","path":"/metadata/ownerReferences/2/uid","value":"c"},{"op":"remove","path":"/metadata/ownerReferences/2"},` +
				`{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"a"},{"op":"remove","path":"/metadata/ownerReferences/0"}]`,
		},
		"blocking": {
			graph.Action{Verb: graph.Unblock, References: refs[:1]},
			"PATCH /api/v1/namespaces/default/configmaps/leaf",
			`[` + bound + `{"op":"test","path":"/metadata/ownerReferences/0/uid","value":"a"},{"op":"replace","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":false}]`,
		},
		"finalizer": {
			graph.Action{Verb: graph.RemoveFinalizer, Finalizer: "orphan", Index: 1},
			"PATCH /api/v1/namespaces/default/configmaps/leaf",
			`[` + bound + `{"op":"test","path":"/metadata/finalizers/1","value":"orphan"},{"op":"remove","path":"/metadata/finalizers/1"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got, body string
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				content, _ := io.ReadAll(r.Body)
				got, body = r.Method+" "+r.URL.Path, strings.TrimSpace(string(content))
				answer(w, http.StatusOK, object("8"))
			})
			c.action.Object, c.action.Version = leaf, 7
			if _, err := perform(t.Context(), client, configMaps, c.action); err != nil {
				t.Fatal(err)
			}
			if got != c.want || body != c.body {
				t.Errorf("%s\n%s\nwant %s\n%s", got, body, c.want, c.body)
			}
		})
	}
}

func TestOutcomeOfResponses(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, name string) metav1.Status {
		s := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason}
		if name != "" {
			s.Details = &metav1.StatusDetails{Name: name, Kind: "configmaps"}
		}
		return s
	}
	for name, c := range map[string]struct {
		code int
		body any
		want graph.Outcome
	}{
		"it is there":                         {200, object("8"), graph.Present},
		"it is not there":                     {404, status(404, metav1.StatusReasonNotFound, "leaf"), graph.Absent},
		"its namespace is not there":          {404, status(404, metav1.StatusReasonNotFound, "default"), graph.Failed},
		"its kind is not served":              {404, "404 page not found", graph.Failed},
		"its kind is not served, in a status": {404, status(404, metav1.StatusReasonNotFound, ""), graph.Failed},
		"it is another":                       {409, status(409, metav1.StatusReasonConflict, "leaf"), graph.Conflict},
		"it has changed":                      {422, status(422, metav1.StatusReasonInvalid, "leaf"), graph.Conflict},
		"its server is away":                  {503, "service unavailable", graph.Failed},
		"forbidden":                           {403, status(403, metav1.StatusReasonForbidden, "leaf"), graph.Failed},
		"its version is not a number":         {200, object("v8"), graph.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, c.code, c.body) })
			got, err := perform(t.Context(), client, configMaps, graph.Action{Verb: graph.LookUp, Object: leaf})
			if got.Outcome != c.want || (err == nil) != (c.want == graph.Present) {
				t.Errorf("outcome %d, error %v, want %d", got.Outcome, err, c.want)
			}
		})
	}
}

func TestConflictIsFollowedByALookupAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		now     string // the version of the object that the lookup returns
		want    []string
		requeue bool
	}{
		"the object has changed":     {"8", []string{"DELETE", "GET", "DELETE"}, false},
		"the object has not changed": {"7", []string{"DELETE", "GET"}, true}, // the same delete may fail again
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			r := newReconciler(serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Method)
				switch {
				case r.Method == http.MethodGet:
					current := object(c.now)
					current.OwnerReferences = []metav1.OwnerReference{ownerOfLeaf}
					answer(w, http.StatusOK, current)
				case len(got) == 1:
					answer(w, http.StatusConflict, metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict})
				default:
					answer(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
				}
			}), nil)
			r.resources[leaf.Kind] = configMaps
			r.graph.Serve(leaf.Kind, true, true)
			r.graph.Replace(leaf.Kind, []graph.Object{
				{Namespace: leaf.Namespace, Name: "owner", UID: "owner", Version: 1},
				{Namespace: leaf.Namespace, Name: leaf.Name, UID: leaf.UID, Version: 7, Owners: []metav1.OwnerReference{ownerOfLeaf}},
			})
			r.graph.Deleted("owner")
			result, err := r.Reconcile(t.Context(), r.graph.Ready()[0])
			if err != nil || result.Requeue != c.requeue { //nolint:staticcheck // the reconciler sets it
				t.Errorf("got %v, %v", result, err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the requests are %q, want %q", got, c.want)
			}
		})
	}
}

func object(version string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leaf", UID: "uid", ResourceVersion: version},
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	if text, ok := body.(string); ok {
		http.Error(w, text, code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// serve returns a client of an API server with the given handler.
func serve(t *testing.T, handler http.HandlerFunc) metadata.Interface {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config := metadata.ConfigFor(&rest.Config{Host: server.URL})
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
