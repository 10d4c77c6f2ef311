package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"svc.dev/svc/apiserver/etcd"
)

// selecting returns options of a watch with a field selector.
func selecting(t *testing.T, selector string, opts storage.ListOptions) storage.ListOptions {
	t.Helper()
	field, err := fields.ParseSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	opts.Recursive = true
	opts.Predicate = storage.SelectionPredicate{
		Label: labels.Everything(), Field: field, AllowWatchBookmarks: opts.Predicate.AllowWatchBookmarks,
		GetAttrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			return nil, fields.Set{"metadata.name": obj.(*corev1.ConfigMap).Name}, nil
		},
	}
	return opts
}

func TestAWatchThatBeginsWithAPartBeginsWithAList(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	for i := range maxPart + 2 {
		create(t.Context(), t, s, fmt.Sprintf("object-%04d", i))
	}
	if _, err := list(t.Context(), s, everything); err != nil { // the cache has all of them
		t.Fatal(err)
	}
	initial := storage.ListOptions{SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	initial.Predicate.AllowWatchBookmarks = true
	none := storage.ListOptions{SendInitialEvents: new(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	for rule, test := range map[string]struct {
		key  string
		opts storage.ListOptions
		list bool
	}{
		"selected objects":                      {"/configmaps", selecting(t, "metadata.name!=object-0000,metadata.name!=object-0001", storage.ListOptions{}), true},
		"selected objects at any version":       {"/configmaps", selecting(t, "metadata.name!=object-0000,metadata.name!=object-0001", storage.ListOptions{ResourceVersion: "0"}), true},
		"selected objects as initial events":    {"/configmaps", selecting(t, "metadata.name!=object-0000,metadata.name!=object-0001", initial), true},
		"more objects than a list may have":     {"/configmaps", selecting(t, "metadata.name!=object-0000", storage.ListOptions{}), false},
		"a namespace with more objects":         {"/configmaps/default", everything, false},
		"all objects":                           {"/configmaps", everything, false},
		"all objects, by a key with a slash":    {"/configmaps/", everything, false},
		"selected objects without their events": {"/configmaps", selecting(t, "metadata.name!=object-0000", none), false},
		"selected objects after a version":      {"/configmaps", selecting(t, "metadata.name!=object-0000", storage.ListOptions{ResourceVersion: versionOf(t, s, "object-0001")}), false},
	} {
		t.Run(rule, func(t *testing.T) {
			w, err := s.Watch(t.Context(), test.key, test.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if _, ok := w.(*partWatch); ok != test.list {
				t.Errorf("the watch is a %T", w)
			}
		})
	}
}

func TestAWatchOfAPartSendsItsObjectsABookmarkAndChanges(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	for _, name := range []string{"a", "b", "c"} {
		create(t.Context(), t, s, name)
	}
	opts := storage.ListOptions{SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	opts.Predicate.AllowWatchBookmarks = true
	signal := flowcontrol.NewInitializationSignal()
	ctx := flowcontrol.WithInitializationSignal(t.Context(), signal)
	w, err := s.Watch(ctx, "/configmaps", selecting(t, "metadata.name!=b", opts))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, want := range []string{"ADDED a", "ADDED c"} {
		e := <-w.ResultChan()
		if got := textOf(e); got != want {
			t.Errorf("received %q, want %q", got, want)
		}
		e.Object.(*corev1.ConfigMap).Name = "changed by the reader"
	}
	bookmark := <-w.ResultChan()
	accessor := bookmark.Object.(*corev1.ConfigMap)
	if bookmark.Type != watch.Bookmark || accessor.Annotations[metav1.InitialEventsAnnotationKey] != "true" || accessor.ResourceVersion != versionOf(t, s, "c") {
		t.Errorf("received %s %v", bookmark.Type, accessor.ObjectMeta)
	}
	signal.Wait()
	create(t.Context(), t, s, "d")
	if got := textOf(<-w.ResultChan()); got != "ADDED d" {
		t.Errorf("received %q", got)
	}
	if got, err := list(t.Context(), s, everything); got != "a b c d" || err != nil {
		t.Errorf("listed %q, %v", got, err)
	}
	w.Stop()
	w.Stop()
	for range w.ResultChan() { // ends
	}
}

func TestAWatchOfAPartEndsWithItsRequest(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	create(t.Context(), t, s, "a")
	create(t.Context(), t, s, "b")
	for _, reads := range []int{0, 1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := s.Watch(ctx, "/configmaps", selecting(t, "metadata.name!=c", storage.ListOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		for range reads {
			<-w.ResultChan()
		}
		cancel()
		for range w.ResultChan() { // ends
		}
	}
}

func TestAWatchOfAPartThatCannotBeReadSendsAnError(t *testing.T) {
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	if _, err := list(t.Context(), s, everything); err != nil {
		t.Fatal(err)
	}
	opts := storage.ListOptions{SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "1000000"}
	w, err := s.Watch(t.Context(), "/configmaps", selecting(t, "metadata.name!=b", opts))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if status, ok := e.Object.(*metav1.Status); e.Type != watch.Error || !ok || !apierrors.HasStatusCause(apierrors.FromObject(status), metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("received %v", e)
	}
	if e, ok := <-w.ResultChan(); ok {
		t.Errorf("received %v after the error", e)
	}
}

// BenchmarkWatchOfANamespace opens watches of an empty namespace beside one with many objects.
func BenchmarkWatchOfANamespace(b *testing.B) {
	backend := open(b, startEtcd(b, etcd.Config{Dir: filepath.Join(b.TempDir(), "etcd")}))
	s, _ := configMaps(b, backend)
	for i := range 10_000 {
		create(b.Context(), b, s, fmt.Sprintf("object-%05d", i))
	}
	opts := everything
	opts.SendInitialEvents, opts.ResourceVersion, opts.ResourceVersionMatch = new(true), "0", metav1.ResourceVersionMatchNotOlderThan
	opts.Predicate.AllowWatchBookmarks = true
	if _, err := list(b.Context(), s, everything); err != nil {
		b.Fatal(err)
	}
	source := lazyOf(s).opened.Load()
	for name, open := range map[string]func() (watch.Interface, error){
		"part":    func() (watch.Interface, error) { return s.Watch(b.Context(), "/configmaps/other", opts) },
		"library": func() (watch.Interface, error) { return source.cacher.Watch(b.Context(), "/configmaps/other", opts) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w, err := open()
				if err != nil {
					b.Fatal(err)
				}
				<-w.ResultChan() // the bookmark
				w.Stop()
			}
		})
	}
}
