package storageversion

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// server answers lists with pages of names, whose resource versions are their numbers, and
// patches with the errors that answers has by name.
type server struct {
	pages   [][]string
	answers map[string]error
	expires bool

	mu      sync.Mutex
	patched map[string]string
}

func (s *server) client(t *testing.T) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewSimpleMetadataClient(scheme)
	s.patched = map[string]string{}
	page := 0
	c.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s.expires && page == 1 {
			s.expires = false
			gone := apierrors.NewResourceExpired("too old")
			gone.ErrStatus.Continue = "again"
			return true, nil, gone
		}
		list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}
		rest := 0
		for _, names := range s.pages[page+1:] {
			rest += len(names)
		}
		if rest > 0 {
			list.Continue, list.RemainingItemCount = "more", new(int64(rest))
		}
		for _, name := range s.pages[page] {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("u" + name), ResourceVersion: name},
			}})
		}
		page++
		return true, list, nil
	})
	c.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.patched[patch.GetName()] = string(patch.GetPatch())
		version := patch.GetName() + "0"
		if strings.HasPrefix(patch.GetName(), "9") { // it is stored in the present form already
			version = patch.GetName()
		}
		return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: patch.GetName(), ResourceVersion: version}}, s.answers[patch.GetName()]
	})
	return c
}

func TestObjectsAreStoredAgain(t *testing.T) {
	group := schema.GroupResource{Resource: "secrets"}
	invalid := apierrors.NewBadRequest("refused")
	for _, test := range []struct {
		name    string
		server  *server
		upTo    string
		first   bool
		want    Result
		patched []string
		err     string
	}{
		{name: "all of several pages", server: &server{pages: [][]string{{"1", "2"}, {"3"}}}, want: Result{Objects: 3, Rewritten: 3}, patched: []string{"1", "2", "3"}},
		{name: "but not those that are in the present form", server: &server{pages: [][]string{{"1", "9"}}}, want: Result{Objects: 2, Rewritten: 1}, patched: []string{"1", "9"}},
		{name: "those up to a version only", server: &server{pages: [][]string{{"9", "10", "11"}}}, upTo: "10", want: Result{Objects: 3, Rewritten: 1}, patched: []string{"10", "9"}},
		{name: "one that was deleted or stored meanwhile needs no more",
			server: &server{pages: [][]string{{"1", "2", "3"}}, answers: map[string]error{"1": apierrors.NewNotFound(group, "1"), "2": apierrors.NewConflict(group, "2", errors.New("changed"))}},
			want:   Result{Objects: 3, Rewritten: 1}, patched: []string{"1", "2", "3"}},
		{name: "the others after an error", server: &server{pages: [][]string{{"1"}, {"2"}}, answers: map[string]error{"1": invalid}},
			want: Result{Objects: 2, Rewritten: 1, Left: 1}, patched: []string{"1", "2"}, err: "secrets n/1: refused"},
		{name: "no others after the first error", server: &server{pages: [][]string{{"1"}, {"2"}}, answers: map[string]error{"1": invalid}}, first: true,
			want: Result{Objects: 2, Left: 2}, patched: []string{"1"}, err: "secrets n/1: refused"},
		{name: "a list that is too old goes on where it was", server: &server{pages: [][]string{{"1"}, {"2"}}, expires: true}, want: Result{Objects: 2, Rewritten: 2}, patched: []string{"1", "2"}},
		{name: "a version that cannot be compared is an error", server: &server{pages: [][]string{{"a"}}}, upTo: "10", want: Result{Objects: 1, Left: 1}, err: "secrets n/a: resource version is not well formed: a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.want.Resource = group
			got, err := Objects{Client: test.server.client(t), Resource: secrets, UpTo: test.upTo, FirstError: test.first}.Rewrite(t.Context())
			if got != test.want || fmt.Sprint(err) != cmp.Or(test.err, "<nil>") {
				t.Errorf("got %+v, %v", got, err)
			}
			if names := slices.Sorted(maps.Keys(test.server.patched)); !slices.Equal(names, test.patched) {
				t.Errorf("patched %v", names)
			}
			for name, patch := range test.server.patched {
				if want := fmt.Sprintf(`{"metadata":{"uid":"u%[1]s","resourceVersion":"%[1]s"}}`, name); patch != want {
					t.Errorf("patch %s", patch)
				}
			}
		})
	}
}

func TestAnErrorOfAListKeepsTheEarlierOnes(t *testing.T) {
	s := server{pages: [][]string{{"1"}, {"2"}}, answers: map[string]error{"1": apierrors.NewBadRequest("refused")}}
	c := s.client(t)
	lists := 0
	c.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists++; lists == 2 {
			return true, nil, apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "list", secrets.GroupResource(), "", "away", 0, false)
		}
		return false, nil, nil
	})
	_, err := Objects{Client: c, Resource: secrets}.Rewrite(t.Context())
	if text := fmt.Sprint(err); !strings.Contains(text, "refused") || !strings.Contains(text, "list secrets") {
		t.Errorf("got %v", err)
	}
}
