package customlist

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/filters/compression"
	"svc.dev/svc/apiserver/itemcache"
)

// widget returns an object as the watch cache holds it.
func widget(i int, color string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{
			"name": fmt.Sprint("w", i), "uid": fmt.Sprint("uid-", i), "resourceVersion": "1",
			"managedFields": []any{map[string]any{"manager": "m", "fieldsV1": map[string]any{"f:spec": map[string]any{}}}},
		},
		"spec": map[string]any{"color": color, "text": `<"items":[]>` + strings.Repeat("x", 1000)},
	}}
}

func widgets(n int) []unstructured.Unstructured {
	items := make([]unstructured.Unstructured, n)
	for i := range items {
		items[i] = widget(i, "red")
	}
	return items
}

// library answers lists of the items as the library's handler of custom resources does.
func library(items []unstructured.Unstructured) http.Handler {
	scheme := runtime.NewScheme()
	encoder := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, jsonserializer.SerializerOptions{StreamingCollectionsEncoding: true})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		list := &unstructured.UnstructuredList{
			Object: map[string]any{"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": map[string]any{"continue": "", "resourceVersion": "7"}},
			Items:  slices.Clone(items),
		}
		Take(req.Context(), list)
		w.Header().Set("Content-Type", "application/json")
		if err := encoder.Encode(list, w); err != nil {
			panic(err)
		}
	})
}

// lists answers requests from the cache, and as the library does.
type lists struct {
	t     *testing.T
	cache *itemcache.Cache
}

func newLists(t *testing.T) lists {
	return lists{t, itemcache.New(1<<20, clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)))}
}

func (l lists) get(handler http.Handler, header http.Header, level auditinternal.Level) (string, bool) {
	l.t.Helper()
	took := false
	seen := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, took = req.Context().Value(takenKey{}).(*taken)
		handler.ServeHTTP(w, req)
	})
	ctx := request.WithRequestInfo(audit.WithAuditContext(l.t.Context()), &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1"})
	if err := audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: level}, nil); err != nil {
		l.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/widgets", nil)
	maps.Copy(req.Header, header)
	w := httptest.NewRecorder()
	Filter(seen, serializer.NewCodecFactory(runtime.NewScheme()), l.cache).ServeHTTP(w, req)
	return w.Body.String(), took
}

func (l lists) expect(items []unstructured.Unstructured) {
	l.t.Helper()
	want := httptest.NewRecorder()
	library(items).ServeHTTP(want, httptest.NewRequest(http.MethodGet, "/", nil))
	if got, _ := l.get(library(items), nil, auditinternal.LevelMetadata); got != want.Body.String() {
		l.t.Errorf("%d items: got %d bytes that begin with %.300q, want %d with %.300q", len(items), len(got), got, want.Body.Len(), want.Body)
	}
}

func TestListsAreThoseOfTheLibrary(t *testing.T) {
	l := newLists(t)
	for _, n := range []int{0, 1, 127, 128, 129, 500} {
		items := widgets(n)
		for range 3 { // the third is written from the cache
			l.expect(items)
		}
	}
}

func TestCompressedListsAreThoseOfTheLibrary(t *testing.T) {
	cache, items := newLists(t).cache, widgets(500)
	want := httptest.NewRecorder()
	library(items).ServeHTTP(want, httptest.NewRequest(http.MethodGet, "/", nil))
	handler := compression.Filter(Filter(library(items), serializer.NewCodecFactory(runtime.NewScheme()), cache), cache)
	for range 5 { // the last ones have compressed pieces
		req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1"}), http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		unzip, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(unzip)
		if err != nil || !bytes.Equal(got, want.Body.Bytes()) {
			t.Errorf("got %d bytes and %v, want %d", len(got), err, want.Body.Len())
		}
	}
}

func TestAChangedItemIsEncodedAgain(t *testing.T) {
	l, items := newLists(t), widgets(3)
	for range 3 {
		l.expect(items)
	}
	items[1] = widget(1, "green") // even if its version is the same
	for range 3 {
		l.expect(items)
	}
	items[2] = widget(2, "blue")
	delete(items[2].Object["metadata"].(map[string]any), "managedFields") // such an item is never kept
	for range 3 {
		items[2].Object["spec"] = map[string]any{"color": "blue"}
		l.expect(items)
	}
}

func TestItemsAreOnlyTakenFromResponsesThatHaveThem(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for rule, test := range map[string]struct {
		accept, agent string
		level         auditinternal.Level
		want          bool
	}{
		"JSON":                                   {accept: "application/json", want: true},
		"no media type":                          {want: true},
		"any media type":                         {accept: "application/json, */*", want: true},
		"a table":                                {accept: table},
		"metadata":                               {accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		"YAML":                                   {accept: "application/yaml"},
		"a media type that the server lacks":     {accept: "text/plain"},
		"indented JSON":                          {agent: "curl/8"},
		"an audit event with the whole response": {level: auditinternal.LevelRequestResponse},
		"an audit event with the request":        {level: auditinternal.LevelRequest, want: true},
	} {
		t.Run(rule, func(t *testing.T) {
			header := http.Header{"User-Agent": {test.agent}}
			if test.accept != "" {
				header.Set("Accept", test.accept)
			}
			level := test.level
			if level == "" {
				level = auditinternal.LevelNone
			}
			body, took := newLists(t).get(library(widgets(2)), header, level)
			if took != test.want {
				t.Errorf("taken: %v, want %v", took, test.want)
			}
			if strings.Count(body, `"uid":"uid-`) != 2 {
				t.Errorf("the response has not the items: %.300s", body)
			}
		})
	}
}

func TestAnErrorAfterTheListStays(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		Take(req.Context(), &unstructured.UnstructuredList{Items: widgets(1)})
		http.Error(w, `"items":[]`, http.StatusNotAcceptable)
	})
	if got, _ := newLists(t).get(handler, nil, auditinternal.LevelNone); got != "\"items\":[]\n" {
		t.Errorf("got %q", got)
	}
}

func TestAListWithoutAPlaceForItsItemsIsBrokenOff(t *testing.T) {
	defer func() {
		if recover() != http.ErrAbortHandler { //nolint:errorlint // a panic's value
			t.Error("the response is complete")
		}
	}()
	newLists(t).get(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		Take(req.Context(), &unstructured.UnstructuredList{Items: widgets(1)})
		_, _ = w.Write([]byte(`{"kind":"WidgetList"}`))
	}), nil, auditinternal.LevelNone)
}

func TestListsOfOtherRequestsAndTypesStay(t *testing.T) {
	list := &unstructured.UnstructuredList{Items: widgets(1)}
	Take(t.Context(), list)
	of := &taken{}
	Take(context.WithValue(t.Context(), takenKey{}, of), &unstructured.Unstructured{})
	if len(list.Items) != 1 || of.items != nil {
		t.Errorf("got %d items and %v", len(list.Items), of.items)
	}
}

func BenchmarkList(b *testing.B) {
	items := widgets(1000)
	for name, cache := range map[string]*itemcache.Cache{"first": nil, "cached": itemcache.New(64<<20, clocktesting.NewFakePassiveClock(time.Unix(0, 0)))} {
		b.Run(name, func(b *testing.B) {
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				list := &body{to: &out, items: items, cached: cache.List(itemcache.Class{})}
				if _, err := list.Write(empty); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
