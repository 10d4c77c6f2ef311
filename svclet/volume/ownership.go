package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apis/podspec"
)

// fsGroup returns the pod's fsGroup, or nil.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// onlyUser returns the user that all containers of a pod run as, or nil if there
// are several. Service account tokens belong to this user.
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

// Permissions that the group gets on the files of a volume.
const (
	groupWrites fs.FileMode = 0o660
	groupReads  fs.FileMode = 0o440
	groupEnters fs.FileMode = 0o110
)

// groupMode returns the mode of a file or directory after its group is set to the
// fsGroup. Directories get the setgid bit, so that new files inherit the group.
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

// own sets the group of dir and everything in it. dir itself comes last: once it
// has the group, everything in it does too (see owned). It never changes anything
// outside of dir, even if a pod replaces paths concurrently. Files whose group or mode cannot be
// changed, on a file system that does not permit it for example, are logged and left
// (changeFilePermission of kubelet).
func own(dir string, group int64, readOnly bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	left, first := 0, error(nil)
	change := func(path string) error {
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		err = root.Lchown(path, -1, int(group))
		// A symlink has no mode of its own.
		if info.Mode()&fs.ModeSymlink == 0 {
			err = cmp.Or(err, root.Chmod(path, groupMode(info.Mode(), readOnly)))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			left++
			first = cmp.Or(first, err)
		}
		return nil
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != "." {
			err = change(path)
		}
		// A file that was removed meanwhile needs no owner.
		return ignoreMissing(err)
	})
	if err == nil {
		err = change(".")
	}
	if err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", group, err)
	}
	if left > 0 {
		klog.Background().Error(first, "Failed to give files of a volume to the pod's group", "dir", dir, "group", group, "files", left)
	}
	return nil
}

// owned reports whether dir has the group and mode that own sets, for
// fsGroupChangePolicy OnRootMismatch.
func owned(dir string, group int64, readOnly bool) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Gid) == group && groupMode(info.Mode(), readOnly) == info.Mode()
}
