package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testclock "k8s.io/utils/clock/testing"
)

// named returns a manifest of a pod with this name.
func named(name string) string { return strings.ReplaceAll(web, "name: web", "name: "+name) }

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), named("a"))
	write(t, filepath.Join(dir, ".hidden"), named("hidden"))
	write(t, filepath.Join(dir, "broken.json"), `{"kind": `)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "sub", "c.yaml"), named("c"))
	r := run(t, Options{Path: dir + "/", FileCheckFrequency: time.Hour})
	r.expect("file set a-n ready")
	a := r.pods["a-n"]

	write(t, filepath.Join(dir, "b"), named("b"))
	r.expect("file set b-n ready")
	write(t, filepath.Join(dir, "broken.json"), named("mended"))
	r.expect("file set mended-n ready")
	write(t, filepath.Join(dir, "a.yaml"), strings.ReplaceAll(named("a"), "img", "img:2"))
	u := r.expect("file set a-n removed a-n ready")
	if u.Removed[0].UID != a.UID || u.Set[0].UID == a.UID {
		t.Error("another manifest, yet the same pod")
	}
	remove(t, filepath.Join(dir, "b"))
	r.expect("file removed b-n ready")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for gone := 0; gone < 2; { // a and mended, at once or not
		gone += len(r.next().Removed)
	}
	// A directory that is created again is watched again.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "d.yaml"), named("d"))
	r.expect("file set d-n ready")
	write(t, filepath.Join(dir, "e.yaml"), named("e"))
	r.expect("file set e-n ready")
}

func TestAPartiallyWrittenFileIsNotReportedAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	r := run(t, Options{Path: dir, FileCheckFrequency: time.Hour})
	r.expect("file ready")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	half := strings.Index(web, "spec")
	for _, part := range []string{web[:half], web[half:]} {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	r.expect("file set web-n ready")
}

func TestASingleManifestFileIsWatched(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pod.yaml")
	write(t, path, named("a"))
	r := run(t, Options{Path: path, FileCheckFrequency: time.Hour})
	r.expect("file set a-n ready")
	write(t, filepath.Join(dir, "other.yaml"), named("other"))
	write(t, path, "kind: ")
	write(t, path, named("b"))
	r.expect("file set b-n removed a-n ready")
	remove(t, path)
	r.expect("file removed b-n ready")
	write(t, path, named("c"))
	r.expect("file set c-n ready")
}

func TestAMissingPathHasNoPods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later")
	r := run(t, Options{Path: path, FileCheckFrequency: time.Hour})
	r.expect("file ready")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "a.yaml"), named("a"))
	r.expect("file set a-n ready")
}

// scanned is the reader of a directory without its loop.
type scanned struct {
	*files
	t     *testing.T
	ctx   context.Context
	clock *testclock.FakeClock
	log   *lines
}

// lines returns what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Log(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprint(args...))
}

func (l *lines) Helper() {}

func scanning(t *testing.T, path string) *scanned {
	clock := testclock.NewFakeClock(time.Now())
	s, err := New(Options{NodeName: "n", Path: path, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	s.updates = make(chan Update, 100)
	log := &lines{}
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(log, ktesting.NewConfig(ktesting.Verbosity(2))))
	return &scanned{&files{s: s, path: path, known: map[string]*file{}, logged: map[string]string{}, shadowed: map[string]string{}}, t, ctx, clock, log}
}

// loggedOf returns how often a message about a file was logged.
func (s *scanned) loggedOf(path string) int {
	count := 0
	for _, line := range s.log.all {
		if strings.Contains(line, path) {
			count++
		}
	}
	return count
}

func TestAnInvalidFileKeepsItsPodUntilTheNextScan(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, named("a"))
	write(t, filepath.Join(dir, "b.yaml"), named("b"))
	s := scanning(t, dir)
	s.scan(s.ctx, false)
	write(t, path, "kind: Po")
	s.forget(path)
	s.scan(s.ctx, false)
	if got := len(s.s.Pods()); got != 2 || s.loggedOf(path) != 0 {
		t.Errorf("%d pods; log: %q", got, s.log.all)
	}
	for range 3 {
		s.scan(s.ctx, true)
	}
	if got := s.s.Pods(); len(got) != 1 || got[0].Name != "b-n" {
		t.Errorf("pods %v", got)
	}
	if s.loggedOf(path) != 1 {
		t.Errorf("log: %q", s.log.all)
	}
	write(t, path, named("a"))
	s.forget(path)
	s.scan(s.ctx, false)
	if got := len(s.s.Pods()); got != 2 {
		t.Errorf("%d pods after it was mended", got)
	}
}

func TestASingleFileKeepsItsPodWhileItIsInvalid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, named("a"))
	s := scanning(t, path)
	s.scan(s.ctx, false)
	write(t, path, "kind: Po")
	s.forget(path)
	for range 3 {
		s.scan(s.ctx, true)
	}
	if got := len(s.s.Pods()); got != 1 {
		t.Errorf("%d pods", got)
	}
	// After a restart the last content of the file is not known.
	s = scanning(t, path)
	s.scan(s.ctx, true)
	if s.s.Ready() {
		t.Error("ready although the only manifest cannot be read")
	}
}

func TestTheLastOfTwoFilesWithOnePodNameIsUsed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), web)
	write(t, filepath.Join(dir, "b.yaml"), web)
	s := scanning(t, dir)
	s.scan(s.ctx, false)
	s.scan(s.ctx, true)
	if got := s.s.Pods(); len(got) != 1 || got[0].UID != s.known[filepath.Join(dir, "b.yaml")].pod.UID {
		t.Errorf("%d pods", len(got))
	}
	if s.loggedOf("a.yaml") != 1 {
		t.Errorf("log: %q", s.log.all)
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, web)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	s := scanning(t, dir)
	s.scan(s.ctx, false)
	pod := s.known[path].pod
	s.scan(s.ctx, true)
	if s.known[path].pod != pod {
		t.Error("it was read again")
	}
	s.forget(path)
	s.scan(s.ctx, true)
	if s.known[path].pod == pod {
		t.Error("it was not read again after an event")
	}
}

func TestAnOversizedManifestIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Skip("no sparse files here")
	}
	f.Close()
	s := scanning(t, dir)
	s.scan(s.ctx, true)
	if len(s.s.Pods()) != 0 || s.loggedOf("longer than 10 MiB") != 1 {
		t.Errorf("log: %q", s.log.all)
	}
}
