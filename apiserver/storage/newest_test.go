package storage

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/etcd"
)

// heldEvents is etcd, whose events arrive at the cache when that asks for its progress, because
// a reader waits for a version.
type heldEvents struct {
	storage.Interface
	asked   chan struct{}
	release func() // closes asked
}

func (h heldEvents) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	events, err := h.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		<-h.asked
		return e, true
	}), nil
}

func (h heldEvents) RequestWatchProgress(ctx context.Context) error {
	h.release()
	return h.Interface.RequestWatchProgress(ctx)
}

func TestAWatchWithoutAVersionBeginsWithTheNewestState(t *testing.T) {
	atAny := everything
	atAny.ResourceVersion = "0"
	for rule, test := range map[string]struct {
		key   string
		opts  storage.ListOptions
		first string
	}{
		"of all objects":                {"/configmaps/", everything, "ADDED new"},
		"of a namespace":                {"/configmaps/default/", everything, "ADDED new"},
		"of selected objects":           {"/configmaps/", selecting(t, "metadata.name!=none", storage.ListOptions{}), "ADDED new"},
		"that may begin with any state": {"/configmaps/", atAny, "ADDED old"},
		"of a part that may begin so":   {"/configmaps/default/", atAny, "ADDED old"},
		"of a selection that may, too":  {"/configmaps/", selecting(t, "metadata.name!=none", storage.ListOptions{ResourceVersion: "0"}), "ADDED old"},
	} {
		t.Run(rule, func(t *testing.T) {
			b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
			s, _ := configMaps(t, b)
			create(t.Context(), t, s, "old")
			lazy, asked := lazyOf(s), make(chan struct{})
			held := heldEvents{lazy.config.Storage, asked, sync.OnceFunc(func() { close(asked) })}
			defer held.release()
			lazy.config.Storage = held
			if _, err := list(t.Context(), s, everything); err != nil { // fills the cache
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), keyOf("old"), &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			create(t.Context(), t, s, "new")
			w, err := s.Watch(t.Context(), test.key, test.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if got := textOf(<-w.ResultChan()); got != test.first {
				t.Errorf("it begins with %q, want %q", got, test.first)
			}
		})
	}
}
