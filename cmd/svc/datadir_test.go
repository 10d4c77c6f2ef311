package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestADataDirectoryHasOneHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, err := openDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !inUse(dir) {
		t.Error("it does not count as in use")
	}
	_, err = openDataDir(dir)
	if err == nil || !strings.Contains(err.Error(), dir+" is in use by process "+strconv.Itoa(os.Getpid())+":") {
		t.Errorf("the second holder gets %v", err)
	}
	first.Close()
	if inUse(dir) {
		t.Error("it counts as in use when nobody holds it")
	}
	second, err := openDataDir(dir)
	if err != nil {
		t.Fatalf("a later holder gets %v", err)
	}
	second.Close()
}

func TestADirectoryThatCannotBeUsedIsNamedWithItsFlag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := openDataDir(dir); err == nil || !strings.HasPrefix(err.Error(), "--data-dir: ") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestAFullDiskIsNamed(t *testing.T) {
	full := t.TempDir()
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	defer syscall.Unmount(full, syscall.MNT_DETACH)
	filler, err := os.Create(filepath.Join(full, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	dir := filepath.Join(full, "data")
	if _, err := openDataDir(dir); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk under "+dir+" is full: free ") {
		t.Errorf("no room for the lock: %v", err)
	}
	// Some files of the keys and certificates have room, but not all.
	if err := filler.Truncate(32 << 10); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := run([]string{"up", "--node=false", "--secure-port=" + freePort(t), "--data-dir=" + dir}, &out, &errOut)
	if code != 1 || !strings.HasPrefix(errOut.String(), "svc up: --data-dir: the disk under "+dir+" is full: free ") || strings.Count(errOut.String(), "\n") != 1 {
		t.Errorf("no room for the keys: exit code %d, %s", code, errOut.String())
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestKubectlTalksToTheLastStartedUpUnlessToldOtherwise(t *testing.T) {
	place := func(t *testing.T, dir string, running bool) string {
		t.Helper()
		lock, err := openDataDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Close() })
		if !running {
			lock.Close()
		}
		if err := os.WriteFile(connectionFile(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return connectionFile(dir)
	}
	for _, tc := range []struct {
		name                          string
		args                          []string
		given                         string
		own, other                    bool // there is a file of svc up on the default directory, on another one
		ownRuns, otherRuns, published bool
		want                          string // own, other or absent; empty is what the user gave
	}{
		{name: "what is not there when svc up has never run, and no other cluster", want: "absent"},
		{name: "nor when it ran on another directory and was stopped", other: true, want: "absent"},
		{name: "what runs on the default directory", own: true, ownRuns: true, want: "own"},
		{name: "what runs on another directory", other: true, otherRuns: true, published: true, want: "other"},
		{name: "the last started of two", own: true, ownRuns: true, other: true, otherRuns: true, published: true, want: "other"},
		{name: "what runs rather than what was killed", own: true, ownRuns: true, other: true, published: true, want: "own"},
		{name: "what was killed when nothing runs", own: true, other: true, published: true, want: "other"},
		{name: "what was stopped when nothing runs", own: true, other: true, want: "own"},
		{name: "KUBECONFIG", given: "mine", own: true, ownRuns: true},
		{name: "--kubeconfig FILE", args: []string{"get", "pods", "--kubeconfig", "x"}, own: true, ownRuns: true},
		{name: "--kubeconfig=FILE", args: []string{"--kubeconfig=x", "get", "pods"}, own: true, ownRuns: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			u := person(map[string]string{
				"XDG_DATA_HOME":   filepath.Join(root, "share"),
				"XDG_RUNTIME_DIR": filepath.Join(root, "run"),
				"KUBECONFIG":      tc.given,
			})
			want := tc.want
			if want == "absent" {
				want = filepath.Join(root, "share", "svc", "admin.svcconfig")
			}
			if tc.own {
				if file := place(t, filepath.Join(root, "share", "svc"), tc.ownRuns); want == "own" {
					want = file
				}
			}
			if tc.other {
				file := place(t, filepath.Join(root, "other"), tc.otherRuns)
				if want == "other" {
					want = file
				}
				withdraw, err := u.publishConnectionFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if !tc.published {
					withdraw()
				}
			}
			got, there := kubeconfigFor(u, tc.args)
			if got != want || there != (want != "" && tc.want != "absent") {
				t.Errorf("got %q (there: %v), want %q", got, there, want)
			}
		})
	}
}

func TestALaterUpKeepsItsPublishedFile(t *testing.T) {
	u := person(map[string]string{"XDG_RUNTIME_DIR": t.TempDir()})
	withdraw, err := u.publishConnectionFile("/first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.publishConnectionFile("/second"); err != nil {
		t.Fatal(err)
	}
	withdraw()
	if target, err := os.Readlink(u.currentLink()); err != nil || target != "/second" {
		t.Errorf("it is %q, %v", target, err)
	}
}

func TestTheDefaultDataDirectoryIsTheUsers(t *testing.T) {
	for _, tc := range []struct {
		name string
		user user
		want string
		err  string
	}{
		{"root's", user{0, func(string) string { return "/elsewhere" }}, "/var/lib/svc", ""},
		{"a user's", person(map[string]string{"HOME": "/home/u"}), "/home/u/.local/share/svc", ""},
		{"a user's with a data directory", person(map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}), "/data/svc", ""},
		{"a relative data directory does not count", person(map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "data"}), "/home/u/.local/share/svc", ""},
		{"nobody's", person(nil), "", "--data-dir: there is no default without HOME; set the flag"},
	} {
		got, err := tc.user.dataDir()
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
}

// person is a user who is not root, with an environment.
func person(env map[string]string) user {
	return user{1000, func(name string) string { return env[name] }}
}
