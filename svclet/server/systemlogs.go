package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// systemLogs serves a directory of logs. Symlinks out of it are not followed: a
// pod that can write there must not read the node's other files through them.
func systemLogs(directory string) http.Handler {
	return http.FileServerFS(within(directory))
}

// within is a directory as a file system that cannot be left. Unlike os.Root it
// follows absolute symlinks to paths inside, such as those of /var/log/containers.
type within string

// Open opens a regular file or a directory; opening other files can block or have
// side effects.
func (w within) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	base, err := filepath.EvalSymlinks(string(w))
	if err != nil {
		return nil, err
	}
	target, err := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(name)))
	if err != nil {
		return fail(fs.ErrNotExist)
	}
	inside, err := filepath.Rel(base, target)
	if err != nil || inside == ".." || strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return fail(fs.ErrNotExist)
	}
	// The path may have changed since it was resolved; os.Root still confines it.
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(inside)
	if err != nil {
		return fail(fs.ErrNotExist)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return fail(errors.New("neither a file nor a directory"))
	}
	return root.OpenFile(inside, os.O_RDONLY|nonBlocking, 0)
}
