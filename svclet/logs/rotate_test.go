package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// writer is a fake runtime that writes "new" to a reopened log.
type writer struct {
	mu     sync.Mutex
	paths  map[string]string
	opened []string
	err    error
}

func (w *writer) ReopenLog(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = append(w.opened, id)
	if w.err != nil {
		return w.err
	}
	return os.WriteFile(w.paths[id], []byte("new"), 0o640)
}

// fixture is a manager with the log 0.log of one container.
type fixture struct {
	*Manager
	runtime *writer
	clock   *clocktesting.FakeClock
	// root is the parent of both directories, dir the directory of the log.
	root, dir string
	container Container
}

// at is the time at the start of each test.
var at = time.Date(2026, 5, 4, 3, 2, 1, 0, time.Local)

func newFixture(t *testing.T, maxFiles int, files map[string]string) *fixture {
	t.Helper()
	h := &fixture{root: t.TempDir(), clock: clocktesting.NewFakeClock(at)}
	h.dir = filepath.Join(h.root, "pods", "ns_p_uid", "c")
	h.container = Container{ID: "id-c", PodNamespace: "ns", PodName: "p", Name: "c", Path: filepath.Join(h.dir, "0.log")}
	h.runtime = &writer{paths: map[string]string{"id-c": h.container.Path}}
	var err error
	h.Manager, err = New(Options{
		Runtime: h.runtime, Running: func() []Container { return []Container{h.container} },
		Dir: filepath.Join(h.root, "pods"), LinkDir: filepath.Join(h.root, "containers"),
		MaxSize: 5, MaxFiles: maxFiles, Clock: h.clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, files)
	return h
}

func (h *fixture) write(t *testing.T, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// files returns the uncompressed contents of the log's directory.
func (h *fixture) files(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(h.dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var from io.Reader = file
		if strings.HasSuffix(entry.Name(), ".gz") {
			if from, err = gzip.NewReader(file); err != nil {
				t.Fatalf("%s: %v", entry.Name(), err)
			}
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		files[entry.Name()] = string(content)
		file.Close()
	}
	return files
}

func (h *fixture) expect(t *testing.T, want map[string]string) {
	t.Helper()
	if got := h.files(t); !maps.Equal(got, want) {
		t.Errorf("files\n got %q\nwant %q", got, want)
	}
}

func packed(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestALogOverTheMaximumSizeIsRotated(t *testing.T) {
	h := newFixture(t, 3, map[string]string{"0.log": "1234"})
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "1234"})
	if len(h.runtime.opened) > 0 {
		t.Errorf("opened %q", h.runtime.opened)
	}

	h.write(t, map[string]string{"0.log": "12345"})
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345"})

	h.clock.Step(time.Minute)
	h.write(t, map[string]string{"0.log": "67890"})
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201.gz": "12345", "0.log.20260504-030301": "67890"})
	info, err := os.Stat(filepath.Join(h.dir, "0.log.20260504-030201.gz"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	h.clock.Step(time.Minute)
	h.write(t, map[string]string{"0.log": "abcde"})
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030301.gz": "67890", "0.log.20260504-030401": "abcde"})
}

func TestWithTwoFilesNoneIsCompressed(t *testing.T) {
	h := newFixture(t, 2, map[string]string{"0.log": "12345", "0.log.20200101-000000": "old"})
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345"})
}

func TestRotationRecoversAfterACrash(t *testing.T) {
	const older, old, now = "0.log.20250101-000000", "0.log.20260101-000000", "0.log.20260504-030201"
	for _, c := range []struct {
		name       string
		left, want map[string]string
	}{
		{"while a log was compressed",
			map[string]string{"0.log": "12345", old: "old", old + ".gz.tmp": "\x1f\x8b..."},
			map[string]string{"0.log": "new", old + ".gz": "old", now: "12345"}},
		{"before a log was removed that is compressed",
			map[string]string{"0.log": "12345", old: "old", old + ".gz": packed(t, "old")},
			map[string]string{"0.log": "new", old + ".gz": "old", now: "12345"}},
		{"as kubelet leaves it",
			map[string]string{"0.log": "12345", old: "old", old + ".tmp": "\x1f\x8b..."},
			map[string]string{"0.log": "new", old + ".gz": "old", now: "12345"}},
		{"before the runtime began a new log",
			map[string]string{old: "old"},
			map[string]string{"0.log": "new", old: "old"}},
		{"with more files than are allowed",
			map[string]string{"0.log": "12345", "0.log.20240101-000000": "x", "0.log.20230101-000000.gz": packed(t, "x"), older: "older", old: "old"},
			map[string]string{"0.log": "new", older + ".gz": "older", old + ".gz": "old", now: "12345"}},
		{"and leaves other files alone",
			map[string]string{"0.log": "12345", "1.log": "x", "1.log.20260101-000000": "x", "0.log.bak": "x", "0.log.1": "x", "00.log.20260101-000000.tmp": "x"},
			map[string]string{"0.log": "new", "1.log": "x", "1.log.20260101-000000": "x", "0.log.bak": "x", "0.log.1": "x", "00.log.20260101-000000.tmp": "x", now: "12345"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFixture(t, 4, c.left)
			h.checkAll(t.Context())
			h.expect(t, c.want)
			if !reflect.DeepEqual(h.runtime.opened, []string{"id-c"}) {
				t.Errorf("opened %q", h.runtime.opened)
			}
		})
	}
}

// TestNoLogLineIsLostByACrash interrupts a rotation before each of its file system
// operations, and then completes the next rotation.
func TestNoLogLineIsLostByACrash(t *testing.T) {
	const old = "0.log.20260101-000000"
	steps := []func(h *fixture, t *testing.T){
		func(h *fixture, t *testing.T) { rename(t, h, "0.log", "0.log.20260504-030200") },
		func(h *fixture, t *testing.T) { h.write(t, map[string]string{"0.log": "new"}) },
		func(h *fixture, t *testing.T) { h.write(t, map[string]string{old + ".gz.tmp": ""}) },
		func(h *fixture, t *testing.T) { h.write(t, map[string]string{old + ".gz.tmp": packed(t, "old")}) },
		func(h *fixture, t *testing.T) { rename(t, h, old+".gz.tmp", old+".gz") },
		func(h *fixture, t *testing.T) { erase(t, h, old) },
	}
	for cut := range len(steps) + 1 {
		h := newFixture(t, 10, map[string]string{"0.log": "12345", old: "old"})
		for _, step := range steps[:cut] {
			step(h, t)
		}
		h.checkAll(t.Context())
		h.clock.Step(time.Minute)
		h.write(t, map[string]string{"0.log": "67890"})
		h.checkAll(t.Context())
		files := h.files(t)
		all := slices.Sorted(maps.Values(files))
		want := []string{"12345", "67890", "new", "old"}
		if !slices.Equal(all, want) {
			t.Errorf("cut before step %d: %q", cut, files)
		}
		for name := range files {
			if strings.HasSuffix(name, ".tmp") {
				t.Errorf("cut before step %d: %s is left", cut, name)
			}
		}
	}
}

func rename(t *testing.T, h *fixture, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(h.dir, from), filepath.Join(h.dir, to)); err != nil {
		t.Fatal(err)
	}
}

func erase(t *testing.T, h *fixture, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(h.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func TestALogIsRenamedBackIfTheRuntimeDoesNotReopenIt(t *testing.T) {
	h := newFixture(t, 3, map[string]string{"0.log": "12345"})
	h.runtime.err = errors.New("unavailable")
	err := h.rotate(t.Context(), "id-c", h.container.Path)
	if err == nil || err.Error() != `failed to reopen container log "id-c": unavailable` {
		t.Errorf("got %v", err)
	}
	h.expect(t, map[string]string{"0.log": "12345"})
	h.runtime.err = nil
	h.checkAll(t.Context())
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345"})
}

func TestALogIsRotatedAlthoughTheOneBeforeCannotBeCompressed(t *testing.T) {
	const old = "0.log.20260101-000000"
	h := newFixture(t, 4, map[string]string{"0.log": "12345", old: "old"})
	h.options.Runtime = runtimeFunc(func() error {
		h.write(t, map[string]string{"0.log": "new"})
		return os.Mkdir(filepath.Join(h.dir, old+".gz.tmp"), 0o755) // what it would write to
	})
	err := h.rotate(t.Context(), "id-c", h.container.Path)
	if !errors.Is(err, fs.ErrExist) || !strings.HasPrefix(err.Error(), `failed to compress log "`+old+`": `) {
		t.Errorf("got %v", err)
	}
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345", old: "old"})
}

func TestCompressionGivesWayToALogThatIsFull(t *testing.T) {
	h := newFixture(t, 3, map[string]string{"0.log": "12345", "0.log.20260101-000000": "old"})
	h.options.Runtime = runtimeFunc(func() error {
		h.write(t, map[string]string{"0.log": "67890"}) // the container writes fast
		return nil
	})
	if err := h.rotate(t.Context(), "id-c", h.container.Path); err != nil {
		t.Error(err)
	}
	h.expect(t, map[string]string{"0.log": "67890", "0.log.20260504-030201": "12345", "0.log.20260101-000000": "old"})
	if err := h.rotate(t.Context(), "id-c", h.container.Path); err != nil {
		t.Error(err)
	}
	h.expect(t, map[string]string{"0.log": "67890", "0.log.20260504-030202": "67890", "0.log.20260504-030201": "12345"})
}

func TestRotatedLogsAreNeverOverwritten(t *testing.T) {
	h := newFixture(t, 10, nil)
	for _, step := range []time.Duration{0, 0, -2 * time.Hour, 90 * time.Minute} {
		h.clock.SetTime(h.clock.Now().Add(step))
		h.write(t, map[string]string{"0.log": "content"})
		h.checkAll(t.Context())
	}
	names := slices.Sorted(maps.Keys(h.files(t)))
	want := []string{"0.log", "0.log.20260504-030201.gz", "0.log.20260504-030202.gz", "0.log.20260504-030203.gz", "0.log.20260504-030204"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
}

func TestALogThatIsASymlinkIsNotFollowed(t *testing.T) {
	h := newFixture(t, 3, map[string]string{})
	secret := filepath.Join(h.root, "secret")
	if err := os.WriteFile(secret, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, h.container.Path); err != nil {
		t.Fatal(err)
	}
	h.options.MaxSize = 0
	if err := h.rotate(t.Context(), "id-c", h.container.Path); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(h.container.Path); err != nil {
		t.Fatal(err)
	}
	h.write(t, map[string]string{"0.log": "12345"})
	if err := os.Symlink(secret, filepath.Join(h.dir, "0.log.20200101-000000")); err != nil {
		t.Fatal(err)
	}
	if err := h.rotate(t.Context(), "id-c", h.container.Path); err != nil {
		t.Error(err)
	}
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345"})
	if content, err := os.ReadFile(secret); err != nil || string(content) != "hunter2" {
		t.Errorf("what the link led to is %q, %v", content, err)
	}
}

func TestAPipeDoesNotBlockRotation(t *testing.T) {
	h := newFixture(t, 3, map[string]string{"0.log": "12345"})
	if err := unix.Mkfifo(filepath.Join(h.dir, "0.log.20200101-000000"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.rotate(t.Context(), "id-c", h.container.Path); err != nil {
		t.Error(err)
	}
	h.expect(t, map[string]string{"0.log": "new", "0.log.20260504-030201": "12345"})
}

func TestARotationEndsWithItsContext(t *testing.T) {
	h := newFixture(t, 3, map[string]string{"0.log": "12345", "0.log.20200101-000000": "old"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.rotate(ctx, "id-c", h.container.Path); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	h.expect(t, map[string]string{"0.log": "12345", "0.log.20200101-000000": "old"})
}

func TestSizesAreCheckedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		m, err := New(Options{
			Dir: t.TempDir(), LinkDir: t.TempDir(), MaxFiles: 2, MaxSize: 5,
			Running: func() []Container { calls++; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { m.Run(ctx) })
		time.Sleep(35 * time.Second)
		cancel()
		done.Wait()
		if calls != 3 {
			t.Errorf("%d calls in 35 s", calls)
		}
	})
}

func TestParallelRotationsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, 2, nil)
		h.options.Workers = 2
		now, most := 0, 0
		var mu sync.Mutex
		h.options.Runtime = runtimeFunc(func() error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		})
		var all []Container
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, Container{ID: id, Path: filepath.Join(h.dir, id+".log")})
		}
		h.options.Running = func() []Container { return all }
		h.checkAll(t.Context())
		if most != 2 {
			t.Errorf("%d at once", most)
		}
	})
}

type runtimeFunc func() error

func (f runtimeFunc) ReopenLog(context.Context, string) error { return f() }

func TestANegativeSizeMeansNoRotation(t *testing.T) {
	h := newFixture(t, 2, map[string]string{"0.log": "12345"})
	h.options.MaxSize = -1
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { h.Run(ctx) })
	cancel()
	done.Wait()
	if h.clock.HasWaiters() {
		t.Error("a timer runs")
	}
	h.expect(t, map[string]string{"0.log": "12345"})
}

func TestFewerThanTwoFilesAreAnError(t *testing.T) {
	if _, err := New(Options{MaxFiles: 1, Dir: t.TempDir(), LinkDir: t.TempDir()}); err == nil {
		t.Error("no error")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{MaxFiles: 2, Dir: filepath.Join(file, "pods"), LinkDir: t.TempDir()}); err == nil {
		t.Error("no error")
	}
}

func FuzzThePlanKeepsTheNewestAndTouchesNoOtherFile(f *testing.F) {
	f.Add("0.log.20260101-000000 0.log.20260101-000000.gz 0.log.20250101-000000.gz.tmp 1.log.20260101-000000 x", 3)
	f.Fuzz(func(t *testing.T, names string, maxFiles int) {
		if maxFiles < 2 || maxFiles > 100 {
			return
		}
		var entries []fs.DirEntry
		for _, name := range strings.Fields(names) {
			entries = append(entries, entry(name))
		}
		p := planFor("0.log", entries, maxFiles)
		if len(p.compress) > maxFiles-2 {
			t.Errorf("keeps %q of at most %d", p.compress, maxFiles-2)
		}
		for _, name := range slices.Concat(p.remove, p.compress) {
			if !strings.HasPrefix(name, "0.log.") || !strings.Contains(names, name) || slices.Contains(p.remove, name) && slices.Contains(p.compress, name) {
				t.Errorf("touches %q", name)
			}
		}
		if p.newest != "" && nextStamp(time.Time{}, p.newest) <= p.newest {
			t.Errorf("%q is followed by %q", p.newest, nextStamp(time.Time{}, p.newest))
		}
	})
}

type entry string

func (e entry) Name() string             { return string(e) }
func (entry) IsDir() bool                { return false }
func (entry) Type() fs.FileMode          { return 0 }
func (entry) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }
