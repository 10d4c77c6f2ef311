package projectquota

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mountExt4 makes an ext4 with features, mounts it with options, and returns its path. It skips
// the test where the kernel does not.
func mountExt4(t *testing.T, options string, features ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		append(append([]string{"mkfs.ext4", "-q"}, features...), image),
		{"mount", "-o", options, image, dir},
	} {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Skip(err)
		}
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func makeDir(t *testing.T, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// used returns what a directory uses, and fails if it has no quota of its own.
func (q *Quotas) used(t *testing.T, dir string) (bytes, inodes uint64) {
	t.Helper()
	bytes, inodes, ok, err := q.Usage(dir)
	if err != nil || !ok {
		t.Fatalf("%s is measured: %t, %v", dir, ok, err)
	}
	return bytes, inodes
}

func TestDirectoriesAreMeasuredByTheKernel(t *testing.T) {
	disk := mountExt4(t, "loop,prjquota", "-O", "quota,project", "-E", "quotatype=prjquota")
	etc := t.TempDir()
	if err := os.WriteFile(filepath.Join(etc, "projects"), []byte("# mine\n1048577:/srv\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(etc, "projid"), []byte("theirs:1048578\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := New()
	q.etc = etc
	first, second := makeDir(t, filepath.Join(disk, "first")), makeDir(t, filepath.Join(disk, "second"))
	for _, dir := range []string{first, second, first} { // again it keeps what it has
		if err := q.Assign(dir); err != nil {
			t.Fatal(err)
		}
	}
	inner := makeDir(t, filepath.Join(first, "inner"))
	open, err := os.Create(filepath.Join(inner, "deleted"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(open.Name()); err != nil {
		t.Fatal(err)
	}
	unix.Sync() // blocks are allocated when files are written back
	if bytes, inodes := q.used(t, first); bytes < 1<<20 || bytes > 3<<19 || inodes != 3 {
		t.Errorf("the first directory: %d bytes, %d inodes, want those of the deleted file, too", bytes, inodes)
	}
	if _, inodes := q.used(t, second); inodes != 1 {
		t.Errorf("the second directory: %d inodes, want its own", inodes)
	}
	if _, _, ok, err := q.Usage(inner); ok || err != nil {
		t.Errorf("a directory with the ID of the one above: %t, %v", ok, err)
	}
	// A later agent gives no ID that is in use.
	later := New()
	later.etc = etc
	third := makeDir(t, filepath.Join(disk, "third"))
	if err := later.Assign(third); err != nil {
		t.Fatal(err)
	}
	if _, inodes := later.used(t, third); inodes != 1 {
		t.Errorf("a directory of a later agent: %d inodes, want its own", inodes)
	}
	for _, path := range []string{first, second, third} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if a, err := q.kernel.attributes(file); err != nil || a.project <= firstID+1 {
			t.Errorf("%s has the project %d, %v, which the administrator reserves", path, a.project, err)
		}
	}
}

// fakeKernel has projects and quotas by path: each directory has one inode, and the content of
// those of a project is what the test says.
type fakeKernel struct {
	projects map[string]attributes
	used     map[uint32]quota
	// refusal is the error of the quotas.
	refusal error
}

func (f *fakeKernel) attributes(file *os.File) (attributes, error) {
	return f.projects[file.Name()], nil
}

func (f *fakeKernel) setAttributes(file *os.File, a attributes) error {
	f.projects[file.Name()] = a
	u := f.used[a.project]
	u.inodes++
	f.used[a.project] = u
	return nil
}

func (f *fakeKernel) quota(_ *os.File, project uint32) (quota, error) {
	return f.used[project], f.refusal
}

func TestDirectoriesGetProjectsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	k := &fakeKernel{projects: map[string]attributes{}, used: map[uint32]quota{firstID: {inodes: 7}}}
	q := &Quotas{kernel: k, etc: dir, next: firstID}
	if err := os.WriteFile(filepath.Join(dir, "projid"), []byte("# mine\ntheirs:1048578\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := makeDir(t, filepath.Join(dir, "first")), makeDir(t, filepath.Join(dir, "second"))
	for _, each := range []string{first, second, first} {
		if err := q.Assign(each); err != nil {
			t.Fatal(err)
		}
	}
	// The first ID is in use, and the second one is reserved.
	for path, want := range map[string]uint32{first: firstID + 2, second: firstID + 3} {
		if got := k.projects[path]; got.project != want || got.flags&inherit == 0 {
			t.Errorf("%s has %+v, want the project %d, which files in it inherit", path, got, want)
		}
	}
	k.used[firstID+2] = quota{bytes: 4096, inodes: 3}
	if bytes, inodes := q.used(t, first); bytes != 4096 || inodes != 3 {
		t.Errorf("the first directory uses %d bytes and %d inodes", bytes, inodes)
	}
	inner := makeDir(t, filepath.Join(first, "inner"))
	k.projects[inner] = k.projects[first] // inherited
	k.projects[dir] = attributes{project: 5, flags: inherit}
	for _, none := range []string{inner, dir} {
		if _, _, ok, err := q.Usage(none); ok || err != nil {
			t.Errorf("%s, whose project is not its own, is measured: %t, %v", none, ok, err)
		}
	}
	k.refusal = syscall.ESRCH
	if _, _, ok, err := q.Usage(first); ok || err != nil {
		t.Errorf("mounted without quotas: %t, %v", ok, err)
	}
	if err := q.Assign(makeDir(t, filepath.Join(dir, "late"))); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("mounted without quotas: %v", err)
	}
	if _, given := k.projects[filepath.Join(dir, "late")]; given {
		t.Error("a directory that cannot be measured has a project")
	}
}

func TestWithoutQuotas(t *testing.T) {
	q := New()
	ext4 := makeDir(t, filepath.Join(mountExt4(t, "loop"), "dir"))
	if err := q.Assign(ext4); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("mounted without quotas: %v", err)
	}
	for _, dir := range []string{ext4, "/proc"} {
		if _, _, ok, err := q.Usage(dir); ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
	}
	if err := q.Assign("/proc"); err == nil {
		t.Error("a file system without projects gives one")
	}
	if err := q.Assign("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}
