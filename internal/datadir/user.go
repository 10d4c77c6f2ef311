package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// User is a user of this machine, as far as default paths depend on it.
type User struct {
	ID  int
	Env func(name string) string
}

// CurrentUser is the user that runs this process.
func CurrentUser() User { return User{os.Geteuid(), os.Getenv} }

// DataDir is the default data directory: RootDefault for root, else svc in the
// XDG data directory (https://specifications.freedesktop.org/basedir-spec).
func (u User) DataDir() (Dir, error) {
	if u.ID == 0 {
		return RootDefault, nil
	}
	if base := u.Env("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return Dir(filepath.Join(base, "svc")), nil
	}
	home := u.Env("HOME")
	if !filepath.IsAbs(home) {
		return "", errors.New("--data-dir: there is no default without HOME; set the flag")
	}
	return Dir(filepath.Join(home, ".local", "share", "svc")), nil
}

// currentLink is the path of a link to the kubeconfig of the svc up that was
// started last, which svc kubectl uses when the data directory is not the
// default one. It is in the runtime directory or, for a user without one (in a container,
// or after su), in the XDG state directory, and empty without HOME.
func (u User) currentLink() string {
	if u.ID == 0 {
		return "/run/svc/admin.svcconfig"
	}
	if base := u.Env("XDG_RUNTIME_DIR"); filepath.IsAbs(base) {
		return filepath.Join(base, "svc", "admin.svcconfig")
	}
	if base := u.Env("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "svc", "admin.svcconfig")
	}
	if home := u.Env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "svc", "admin.svcconfig")
	}
	return ""
}

// Publish makes the kubeconfig file the one that svc kubectl uses, until
// withdraw is called or a later svc up publishes its own.
func (u User) Publish(file string) (withdraw func(), err error) {
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
			_ = os.Remove(link) // readers recognize a stale link: its directory is not locked
		}
	}, nil
}

// FindAdminFile returns the kubeconfig of the svc up that was started last, if
// it still runs, else that of the one on the default data directory. If neither
// runs it returns a file that one of them left, because a server that does not
// answer is a clearer error than requests to another cluster. If no such file
// exists, it returns the path where the default one would be, and exists is
// false.
func (u User) FindAdminFile() (file string, exists bool) {
	var files []string
	if file, err := os.Readlink(u.currentLink()); err == nil {
		files = append(files, file)
	}
	if dir, err := u.DataDir(); err == nil {
		files = append(files, dir.AdminFile())
	}
	for _, matches := range []func(file string) bool{
		func(file string) bool { return Dir(filepath.Dir(file)).InUse() },
		func(file string) bool { _, err := os.Stat(file); return err == nil },
	} {
		if i := slices.IndexFunc(files, matches); i >= 0 {
			return files[i], true
		}
	}
	if len(files) == 0 {
		return "", false
	}
	return files[len(files)-1], false
}
