package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// shownBy returns the names that a directory shows to users.
func shownBy(t *testing.T, dir string) map[string]string {
	t.Helper()
	shown := tree(t, dir)
	for name, text := range shown {
		_, shown[name], _ = strings.Cut(text, " ")
	}
	return shown
}

func filesOf(texts map[string]string) map[string]file {
	files := map[string]file{}
	for name, text := range texts {
		files[name] = file{data: []byte(text), mode: 0o644}
	}
	return files
}

func TestAfterAnySequenceOfWritesTheLastSetIsShown(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c/d", "c/e", "f/g/h", "f/i", ".hidden"}
	dir := t.TempDir()
	now := time.Unix(0, 0)
	for round := range 200 {
		want := map[string]string{}
		for _, name := range names {
			if random.IntN(2) == 0 {
				want[name] = fmt.Sprint(random.IntN(3))
			}
		}
		now = now.Add(time.Second)
		// An interrupted write may leave these.
		if round%7 == 0 {
			must(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf("..left-%d", round)), 0o700))
			must(t, os.Symlink("nowhere", filepath.Join(dir, newDataLink)))
		}
		must(t, writer{dir: dir, now: now}.write(filesOf(want)))
		if got := shownBy(t, dir); !maps.Equal(got, want) {
			t.Fatalf("round %d: shows %v, want %v", round, got, want)
		}
		entries, err := os.ReadDir(dir)
		must(t, err)
		hidden := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), "..") })
		if len(hidden) != 2 {
			t.Fatalf("round %d: left are %v", round, hidden)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnchangedFilesAreNotRewritten(t *testing.T) {
	dir := t.TempDir()
	files := filesOf(map[string]string{"a": "1", "b/c": "2"})
	must(t, writer{dir: dir, now: time.Unix(0, 0)}.write(files))
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	must(t, err)
	must(t, os.Remove(filepath.Join(dir, "b")))
	must(t, writer{dir: dir, now: time.Unix(9, 0)}.write(files))
	after, err := os.Readlink(filepath.Join(dir, dataLink))
	must(t, err)
	if before != after {
		t.Error("written again")
	}
	if got := shownBy(t, dir); got["b/c"] != "2" {
		t.Errorf("a symlink that was missing is not created: %v", got)
	}
}

func TestReadersNeverSeeAMixtureOfTwoSets(t *testing.T) {
	dir := t.TempDir()
	set := func(i int) map[string]file {
		text := fmt.Sprint(i)
		return filesOf(map[string]string{"a": text, "b": text, "c/d": text})
	}
	must(t, writer{dir: dir, now: time.Unix(0, 0)}.write(set(0)))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	seen := make(chan string, 1)
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if text := readSet(dir); text != "" {
					select {
					case seen <- text:
					default:
					}
					return
				}
			}
		})
	}
	for i := range 500 {
		must(t, writer{dir: dir, now: time.Unix(int64(i), 0)}.write(set(i)))
	}
	close(stop)
	readers.Wait()
	select {
	case text := <-seen:
		t.Error(text)
	default:
	}
}

// readSet opens ..data once and reads all its files. It describes a mixture of two
// sets, or returns "" if there is none, also if the set was removed meanwhile.
func readSet(dir string) string {
	root, err := os.OpenRoot(filepath.Join(dir, dataLink))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return err.Error()
	}
	defer root.Close()
	var all []string
	for _, name := range []string{"a", "b", "c/d"} {
		data, err := root.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		all = append(all, string(data))
	}
	if all[0] != all[1] || all[1] != all[2] || all[0] == "" {
		return fmt.Sprintf("a mixture: %q", all)
	}
	return ""
}

func TestFilePathsStayInsideTheDirectory(t *testing.T) {
	for _, path := range []string{
		"", ".", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "..data", "..x/y", "./..data", "a//../b",
		"...", strings.Repeat("x", 256), strings.Repeat("x/", 2100),
	} {
		if checkPath(path) == nil {
			t.Errorf("%.20q is accepted", path)
		}
	}
	for _, path := range []string{"a", "a/b", ".a", "a/..b", "a..b", "a/./b"} {
		if err := checkPath(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// FuzzWriter writes arbitrary paths: nothing is written outside the directory, and
// every accepted file is shown.
func FuzzWriter(f *testing.F) {
	f.Add("a", "b/c", "x")
	f.Add("../a", "..data", "")
	f.Add("a", "a/b", "y")
	f.Fuzz(func(t *testing.T, one, two, text string) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "volume")
		must(t, os.Mkdir(dir, 0o755))
		err := writer{dir: dir, now: time.Unix(0, 0)}.write(filesOf(map[string]string{one: text, two: text}))
		entries, readErr := os.ReadDir(outer)
		must(t, readErr)
		if len(entries) != 1 {
			t.Fatalf("%q and %q escape: %v", one, two, entries)
		}
		if err != nil {
			return
		}
		for _, path := range []string{one, two} {
			if data, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(data) != text {
				t.Errorf("%q shows %q, %v", path, data, err)
			}
		}
	})
}
