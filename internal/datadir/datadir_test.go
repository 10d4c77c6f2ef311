package datadir

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestADataDirectoryHasOneHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := Dir(dir).Open()
	if err != nil {
		t.Fatal(err)
	}
	if !Dir(dir).InUse() {
		t.Error("it does not count as in use")
	}
	_, err = Dir(dir).Open()
	if err == nil || !strings.Contains(err.Error(), dir+" is in use by process "+strconv.Itoa(os.Getpid())+":") {
		t.Errorf("the second holder gets %v", err)
	}
	first.Close()
	if Dir(dir).InUse() {
		t.Error("it counts as in use after its holder has closed the lock")
	}
	second, err := Dir(dir).Open()
	if err != nil {
		t.Fatalf("a later holder gets %v", err)
	}
	second.Close()
}

func TestAReaderOfTheLockDoesNotMakeOpenFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := Dir(t.TempDir())
		lock, err := dir.Open()
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
		reader, err := os.Open(dir.lockFile())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(reader.Fd()), syscall.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(readerWait/2, func() { reader.Close() })
		lock, err = dir.Open()
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
	})
}

func TestADirectoryThatCannotBeUsedIsNamedWithItsFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := Dir(dir).Open(); err == nil || !strings.HasPrefix(err.Error(), "--data-dir: ") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestWithdrawKeepsTheFileThatALaterUpPublished(t *testing.T) {
	u := person(map[string]string{"XDG_RUNTIME_DIR": t.TempDir()})
	withdraw, err := u.Publish("/first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Publish("/second"); err != nil {
		t.Fatal(err)
	}
	withdraw()
	if target, err := os.Readlink(u.currentLink()); err != nil || target != "/second" {
		t.Errorf("it is %q, %v", target, err)
	}
}

func TestAUserWithoutARuntimeDirectoryHasALastStartedUpToo(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"/run/user/1/svc/admin.svcconfig":          {"HOME": "/home/u", "XDG_STATE_HOME": "/state", "XDG_RUNTIME_DIR": "/run/user/1"},
		"/state/svc/admin.svcconfig":               {"HOME": "/home/u", "XDG_STATE_HOME": "/state"},
		"/home/u/.local/state/svc/admin.svcconfig": {"HOME": "/home/u"},
		"": {},
	} {
		if got := person(env).currentLink(); got != want {
			t.Errorf("with %v: %q, want %q", env, got, want)
		}
	}
}

func TestTheDefaultDataDirectoryIsTheUsers(t *testing.T) {
	for _, tc := range []struct {
		name string
		user User
		want Dir
		err  string
	}{
		{"root's", User{0, func(string) string { return "/elsewhere" }}, "/var/lib/svc", ""},
		{"a user's", person(map[string]string{"HOME": "/home/u"}), "/home/u/.local/share/svc", ""},
		{"a user's with a data directory", person(map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}), "/data/svc", ""},
		{"a relative data directory does not count", person(map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "data"}), "/home/u/.local/share/svc", ""},
		{"a user's without a home", person(nil), "", "--data-dir: there is no default without HOME; set the flag"},
	} {
		got, err := tc.user.DataDir()
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
}

// person is a user who is not root, with an environment.
func person(env map[string]string) User {
	return User{1000, func(name string) string { return env[name] }}
}
