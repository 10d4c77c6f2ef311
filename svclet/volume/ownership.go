package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/podspec"
)

// fsGroup is the group to which a pod's volumes are to belong, if it has one.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// onlyUser is the user as whom all containers of a pod run, if it is one. Tokens
// belong to it.
func onlyUser(pod *corev1.Pod) *int64 {
	var podUser, only *int64
	if c := pod.Spec.SecurityContext; c != nil {
		podUser = c.RunAsUser
	}
	for _, c := range podspec.All(&pod.Spec) {
		user := podUser
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || (only != nil && *only != *user) {
			return nil
		}
		only = user
	}
	return only
}

// Bits that the group gets on what belongs to it.
const (
	groupWrites fs.FileMode = 0o660
	groupReads  fs.FileMode = 0o440
	groupEnters fs.FileMode = 0o110
)

// groupMode is the mode of a file or directory of the given mode once it
// belongs to the pod's group. Those of directories pass the group on to what is
// made in them.
func groupMode(mode fs.FileMode, readOnly bool) fs.FileMode {
	if readOnly {
		mode |= groupReads
	} else {
		mode |= groupWrites
	}
	if mode.IsDir() {
		mode |= groupEnters | fs.ModeSetgid
	}
	return mode
}

// own gives dir and all that is in it to the group. The directory itself comes
// last: once it is the group's, all the rest is (see owned). Nothing outside
// of it is touched, whatever the pods that use it put in the place of what was
// there.
func own(dir string, group int64, readOnly bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	change := func(path string) error {
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		if err := root.Lchown(path, -1, int(group)); err != nil {
			return err
		}
		// A symlink has no mode of its own.
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil
		}
		return root.Chmod(path, groupMode(info.Mode(), readOnly))
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != "." {
			err = change(path)
		}
		// What goes away meanwhile needs no owner.
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err == nil {
		err = change(".")
	}
	if err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", group, err)
	}
	return nil
}

// owned says whether dir belongs to the group already, as own leaves it: what
// fsGroupChangePolicy OnRootMismatch asks.
func owned(dir string, group int64, readOnly bool) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Gid) == group && groupMode(info.Mode(), readOnly) == info.Mode()
}
