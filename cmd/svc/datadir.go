package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The content of a data directory.
func pkiDir(dir string) string         { return filepath.Join(dir, "pki") }
func etcdDir(dir string) string        { return filepath.Join(dir, "etcd") }
func lockFile(dir string) string       { return filepath.Join(dir, "svc.lock") }
func connectionFile(dir string) string { return filepath.Join(dir, "admin.svcconfig") }
func controllersFile(dir string) string {
	return filepath.Join(dir, "controller-manager.svcconfig")
}

// user is whoever runs svc: where his files are by default.
type user struct {
	id  int
	env func(name string) string
}

func currentUser() user { return user{os.Geteuid(), os.Getenv} }

// dataDir is the default data directory: /var/lib/svc for root, else svc in the
// XDG data directory (https://specifications.freedesktop.org/basedir-spec).
func (u user) dataDir() (string, error) {
	if u.id == 0 {
		return "/var/lib/svc", nil
	}
	if base := u.env("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "svc"), nil
	}
	home := u.env("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("--data-dir: there is no default without HOME; set the flag")
	}
	return filepath.Join(home, ".local", "share", "svc"), nil
}

// openDataDir makes dir if needed, and takes it for this process until the
// returned lock is closed, or the process ends in whatever way.
func openDataDir(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: cannot make the directory: %w; choose another", explainFull(dir, err))
	}
	lock, err = os.OpenFile(lockFile(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: cannot write to %s: %w; choose another, or give this user access", dir, err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder := readPid(lock)
		lock.Close()
		return nil, fmt.Errorf("--data-dir: %s is in use by process %s: stop that, or choose another directory", dir, holder)
	}
	if err == nil {
		err = writePid(lock)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("--data-dir: cannot lock %s: %w; choose another", dir, explainFull(dir, err))
	}
	return lock, nil
}

// explainFull adds to an error in dir what to do about a disk without room.
func explainFull(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk under %s is full: free at least 256 MiB: %w", dir, err)
	}
	return err
}

// inUse tells whether some svc up runs on dir now.
func inUse(dir string) bool {
	lock, err := os.Open(lockFile(dir))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

func readPid(lock *os.File) string {
	content := make([]byte, 32)
	n, _ := lock.ReadAt(content, 0) // ends in io.EOF
	if pid := strings.TrimSpace(string(content[:n])); pid != "" {
		return pid
	}
	return "(unknown)"
}

func writePid(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// currentLink is where a running svc up leaves a link to its connection file,
// for svc kubectl to find when the data directory is not the default one. It is
// empty when the user has no directory for such things.
func (u user) currentLink() string {
	if u.id == 0 {
		return "/run/svc/admin.svcconfig"
	}
	if base := u.env("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		return filepath.Join(base, "svc", "admin.svcconfig")
	}
	return ""
}

// publishConnectionFile makes file the one that svc kubectl uses, until the
// returned function is called or a later svc up does the same.
func (u user) publishConnectionFile(file string) (withdraw func(), err error) {
	link := u.currentLink()
	if link == "" {
		return func() {}, nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return nil, fmt.Errorf("publish %s: %w", file, err)
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("publish %s: %w", file, err)
	}
	if err := os.Symlink(file, link); err != nil {
		return nil, fmt.Errorf("publish %s: %w", file, err)
	}
	return func() {
		if target, err := os.Readlink(link); err == nil && target == file {
			_ = os.Remove(link) // a leftover is seen to be stale: nobody holds the directory
		}
	}, nil
}

// findConnectionFile returns the connection file of the svc up that was started
// last, if that still runs, or of the one on the default data directory. When
// neither runs it returns the file of one that did: to be told that it does not
// answer is better than to talk to something else. For the same reason it then
// names the file that is to be, and says that it is not there.
func (u user) findConnectionFile() (file string, there bool) {
	var files []string
	if file, err := os.Readlink(u.currentLink()); err == nil {
		files = append(files, file)
	}
	if dir, err := u.dataDir(); err == nil {
		files = append(files, connectionFile(dir))
	}
	for _, found := range []func(file string) bool{
		func(file string) bool { return inUse(filepath.Dir(file)) },
		func(file string) bool { _, err := os.Stat(file); return err == nil },
	} {
		if i := slices.IndexFunc(files, found); i >= 0 {
			return files[i], true
		}
	}
	if len(files) == 0 {
		return "", false
	}
	return files[len(files)-1], false
}
