package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"svc.dev/svc/apiserver/etcd"
)

// journal is what was written, in order.
type journal struct {
	mu      sync.Mutex
	entries []change
	there   map[string]bool // by name; the writer's
}

type change struct {
	kind    watch.EventType
	name    string
	version uint64
}

func changeOf(kind watch.EventType, obj runtime.Object) (change, error) {
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(obj)
	named, ok := obj.(interface{ GetName() string })
	if err != nil || !ok {
		return change{}, fmt.Errorf("%s of %T: %w", kind, obj, err)
	}
	return change{kind, named.GetName(), version}, nil
}

func (j *journal) add(kind watch.EventType, c *corev1.ConfigMap) error {
	made, err := changeOf(kind, c)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, made)
	return err
}

func (j *journal) list() []change {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries
}

func (j *journal) latest() uint64 {
	entries := j.list()
	return entries[len(entries)-1].version
}

func (j *journal) create(ctx context.Context, s storage.Interface, name string) error {
	c := &corev1.ConfigMap{}
	given := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	if err := s.Create(ctx, keyOf(name), given, c, 0); err != nil {
		return err
	}
	j.there[name] = true
	return j.add(watch.Added, c)
}

// write makes random changes to a few objects.
func (j *journal) write(ctx context.Context, s storage.Interface, random *rand.Rand, changes int) error {
	for range changes {
		name, c := fmt.Sprint("object-", random.Intn(6)), &corev1.ConfigMap{}
		var err error
		var kind watch.EventType
		switch {
		case !j.there[name]:
			if err := j.create(ctx, s, name); err != nil {
				return err
			}
			continue
		case random.Intn(4) == 0:
			kind = watch.Deleted
			err = s.Delete(ctx, keyOf(name), c, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
			delete(j.there, name)
		default:
			kind = watch.Modified
			err = s.GuaranteedUpdate(ctx, keyOf(name), c, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
				changed := obj.DeepCopyObject().(*corev1.ConfigMap)
				changed.Data = map[string]string{"n": strconv.Itoa(random.Int())}
				return changed, nil
			}), nil)
		}
		if err != nil {
			return err
		}
		if err := j.add(kind, c); err != nil {
			return err
		}
	}
	return nil
}

// explain returns an error if the events of a watch are not what the journal
// says. A watch from a version (state is false) receives every change after it.
// A watch with initial events (state is true) receives the objects that exist,
// and every change after that. complete is whether the watch was read to the
// last change.
func (j *journal) explain(received []change, from uint64, state, complete bool) error {
	for p := range len(j.entries) + 1 {
		if !state && (p > 0 && j.entries[p-1].version > from || p < len(j.entries) && j.entries[p].version <= from) {
			continue
		}
		var objects []change
		if state {
			objects = stateAfter(j.entries[:p])
		}
		if len(received) < len(objects) {
			if !complete && !slices.ContainsFunc(received, func(c change) bool { return !slices.Contains(objects, c) }) {
				return nil
			}
			continue
		}
		first := slices.SortedFunc(slices.Values(received[:len(objects)]), byName)
		rest, after := received[len(objects):], j.entries[p:]
		if slices.Equal(first, objects) && len(rest) <= len(after) && slices.Equal(rest, after[:len(rest)]) && (!complete || len(rest) == len(after)) {
			return nil
		}
	}
	return fmt.Errorf("received %v", received)
}

func byName(a, b change) int { return strings.Compare(a.name, b.name) }

func stateAfter(entries []change) []change {
	objects := map[string]change{}
	for _, e := range entries {
		if e.kind == watch.Deleted {
			delete(objects, e.name)
			continue
		}
		e.kind = watch.Added
		objects[e.name] = e
	}
	return slices.SortedFunc(maps.Values(objects), byName)
}

func TestManyEqualWatchesReceiveEveryChangeOnceAndInOrder(t *testing.T) {
	for what, key := range map[string]string{"of a type": "/configmaps/", "of a namespace": "/configmaps/default/"} {
		t.Run(what, func(t *testing.T) { manyEqualWatches(t, key) })
	}
}

func manyEqualWatches(t *testing.T, key string) {
	const changes, watches = 400, 60
	b := open(t, startEtcd(t, etcd.Config{Dir: filepath.Join(t.TempDir(), "etcd")}))
	s, _ := configMaps(t, b)
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()

	if _, err := list(ctx, s, everything); err != nil { // the cache reaches back to here
		t.Fatal(err)
	}

	random := rand.New(rand.NewSource(seed))
	written := journal{there: map[string]bool{}}
	if err := written.write(ctx, s, random, 1); err != nil {
		t.Fatal(err)
	}
	var writing, watching sync.WaitGroup
	end := make(chan struct{}) // after it, latest is the last
	writing.Go(func() {
		if err := written.write(ctx, s, rand.New(rand.NewSource(seed+1)), changes); err != nil {
			t.Error(err)
		}
	})
	for i := range watches {
		opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
		opts.Predicate.AllowWatchBookmarks = random.Intn(2) == 0
		var from uint64
		switch random.Intn(4) {
		case 0:
			opts.ResourceVersion = "0"
		case 1:
			opts.ResourceVersion, opts.SendInitialEvents, opts.ResourceVersionMatch = "0", new(true), metav1.ResourceVersionMatchNotOlderThan
		case 2:
			from = written.latest()
			opts.ResourceVersion = strconv.FormatUint(from, 10)
		}
		stopAfter := -1
		if random.Intn(3) == 0 {
			stopAfter = random.Intn(100)
		}
		w, err := s.Watch(ctx, key, opts)
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			defer w.Stop()
			received, complete, err := follow(w, from, stopAfter, end, written.latest)
			if err == nil {
				<-end
				err = written.explain(received, from, from == 0, complete)
			}
			// The watch cache ends its own if their readers are slow.
			if shared := fmt.Sprintf("%T", w) == "*watchmux.subscription"; err == nil && !complete && stopAfter < 0 && shared {
				err = errors.New("ended before it had received all changes")
			}
			if err != nil {
				t.Errorf("watch %d, %T, from %d: %v", i, w, from, err)
			}
		})
		for target := min(len(written.list())+changes/watches, changes); len(written.list()) < target && ctx.Err() == nil; {
			goruntime.Gosched()
		}
	}
	writing.Wait()
	// A watch that began after the last change would not receive it.
	if err := written.create(ctx, s, "the-last"); err != nil {
		t.Error(err)
	}
	close(end)
	watching.Wait()
	if t.Failed() {
		t.Log("written", written.entries)
	}
}

// follow reads a watch from a version: stopAfter changes, or until it has received the latest
// change after end is closed.
func follow(w watch.Interface, from uint64, stopAfter int, end <-chan struct{}, latest func() uint64) (received []change, complete bool, err error) {
	version := from
	for {
		var ended <-chan struct{}
		if len(received) > 0 {
			version = max(version, received[len(received)-1].version)
		}
		select {
		case <-end:
			if version == latest() {
				return received, true, nil
			}
		default:
			ended = end
		}
		if len(received) == stopAfter {
			return received, false, nil
		}
		select {
		case <-ended:
		case e, ok := <-w.ResultChan():
			if !ok {
				return received, false, nil
			}
			if e.Type == watch.Bookmark {
				continue
			}
			c, err := changeOf(e.Type, e.Object)
			if err != nil {
				return nil, false, err
			}
			received = append(received, c)
		}
	}
}
