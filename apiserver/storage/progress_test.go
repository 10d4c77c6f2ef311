package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/etcd"
)

// backends are the two ways to reach an etcd, each with an etcd of its own.
func backends(t *testing.T) map[string]*Backend {
	t.Helper()
	member := startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})
	embedded, err := Open(Config{Servers: member.Endpoints(), Client: member.Client(), Check: member.Check})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = embedded.Close() })
	return map[string]*Backend{
		"in the same process": embedded,
		"connected":           open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")})),
	}
}

// cachedConfigMaps makes a store of config maps whose cache is one version behind
// etcd. The version that is returned, the newest, is that of a secret; the cache
// of secrets was filled after its creation.
func cachedConfigMaps(t *testing.T, b *Backend) (s storage.Interface, version string) {
	t.Helper()
	s, _ = storeOf(t, b, "configmaps")
	secrets, _ := storeOf(t, b, "secrets")
	create(t.Context(), t, s, "a")
	if _, err := list(t.Context(), s, everything); err != nil {
		t.Fatal(err)
	}
	written := &corev1.Secret{}
	given := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default"}}
	if err := secrets.Create(t.Context(), "/secrets/default/b", given, written, 0); err != nil {
		t.Fatal(err)
	}
	if err := secrets.GetList(t.Context(), "/secrets/", everything, &corev1.SecretList{}); err != nil {
		t.Fatal(err)
	}
	return s, written.ResourceVersion
}

func TestAReadAtAnExistingVersionDoesNotWaitForALaterWrite(t *testing.T) {
	at := func(version string, match metav1.ResourceVersionMatch) storage.ListOptions {
		opts := everything
		opts.ResourceVersion, opts.ResourceVersionMatch = version, match
		return opts
	}
	for rule, read := range map[string]func(ctx context.Context, s storage.Interface, version string) error{
		"get": func(ctx context.Context, s storage.Interface, version string) error {
			return s.Get(ctx, keyOf("a"), storage.GetOptions{ResourceVersion: version}, &corev1.ConfigMap{})
		},
		"list not older than": func(ctx context.Context, s storage.Interface, version string) error {
			_, err := list(ctx, s, at(version, metav1.ResourceVersionMatchNotOlderThan))
			return err
		},
		"list of that version": func(ctx context.Context, s storage.Interface, version string) error {
			_, err := list(ctx, s, at(version, metav1.ResourceVersionMatchExact))
			return err
		},
		"consistent list": func(ctx context.Context, s storage.Interface, _ string) error {
			_, err := list(ctx, s, everything)
			return err
		},
		"streaming list": func(ctx context.Context, s storage.Interface, version string) error {
			opts := at(version, metav1.ResourceVersionMatchNotOlderThan)
			opts.SendInitialEvents, opts.Predicate.AllowWatchBookmarks = new(true), true
			w, err := s.Watch(ctx, "/configmaps/", opts)
			if err != nil {
				return err
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				if e.Type == watch.Error {
					return apierrors.FromObject(e.Object)
				}
				if e.Type == watch.Bookmark {
					return nil
				}
			}
			return ctx.Err()
		},
	} {
		t.Run(rule, func(t *testing.T) {
			var err error
			for range 3 { // a machine may stand still for so long once
				if err = promptly(t, read); err == nil {
					return
				}
			}
			t.Error(err)
		})
	}
}

// promptly reads at the newest version, and returns an error if that has waited until the
// cache gave up, which it does after 3 s; a consistent list then reads from etcd.
func promptly(t *testing.T, read func(ctx context.Context, s storage.Interface, version string) error) error {
	t.Helper()
	for name, b := range backends(t) {
		s, version := cachedConfigMaps(t, b)
		start := time.Now()
		if err := read(t.Context(), s, version); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if took := time.Since(start); took > 2*time.Second {
			return fmt.Errorf("%s: it took %v", name, took)
		}
	}
	return nil
}
