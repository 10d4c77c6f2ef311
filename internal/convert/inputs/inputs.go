// Package inputs owns the files that a conversion reads and writes: it finds them,
// converts each, and writes the changed ones.
package inputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/manifest"
)

// Stdin is the name that stands for the standard input.
const Stdin = "-"

// Result is what came out of all files.
type Result struct {
	Files    []File
	Outcomes []convert.Outcome
	// Errors are mistakes in single files: the others are in the result.
	Errors []error
}

// File is a file before and after its conversion.
type File struct {
	Name, Before, After string
	// Outside is whether the file is outside of the directory that was named: a symbolic
	// link of the directory leads to it.
	Outside bool
}

// Convert converts the files of the names, which may be files, directories or Stdin. In
// directories it reads what ends with .yaml, .yml or .json, also through symbolic links,
// and leaves out what is hidden. A link to a directory is not followed: it is not checked.
// It gives up reading stdin when ctx is done.
func Convert(ctx context.Context, c *convert.Converter, names []string, stdin io.Reader) (*Result, error) {
	result := &Result{}
	seen := map[string]bool{}
	for _, name := range names {
		if name == Stdin {
			text, err := readAll(ctx, stdin)
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			result.add(c, "<stdin>", string(text), false)
			continue
		}
		files, inDirectory, err := find(name)
		if err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(files, func(file string) bool {
			if inDirectory && result.leaveOut(file) {
				return true
			}
			path := realPath(file)
			again := seen[path]
			seen[path] = true
			return again
		})
		patches := patchesOf(files)
		for _, file := range files {
			before := len(result.Files)
			result.read(c, file, patches[filepath.Clean(file)], inDirectory)
			if inDirectory && len(result.Files) > before {
				_, isInside := inside(name, file)
				result.Files[before].Outside = !isInside
			}
		}
	}
	return result, nil
}

// readAll reads r to its end or until ctx is done. A read of a pipe cannot be interrupted:
// then it goes on in the background.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(r)
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		return r.text, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// realPath returns the one name that a file has besides those by symbolic links.
func realPath(name string) string {
	if absolute, err := filepath.Abs(name); err == nil {
		name = absolute
	}
	return target(name)
}

// read converts one file.
func (r *Result) read(c *convert.Converter, file string, isPatch, inDirectory bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		r.Errors = append(r.Errors, failed(file, "cannot be read", err))
		return
	}
	of := *c
	of.Patch = isPatch
	if isKustomization(file) {
		of.Kustomization = func(path string) string {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(file), path))
			if err != nil {
				return "" // kustomize itself reports it
			}
			return string(text)
		}
	}
	r.add(&of, file, string(text), inDirectory)
}

// failed returns an error of the operating system about a file, which it names once.
func failed(file, what string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no such file or directory", file)
	}
	return fmt.Errorf("%s: %s: %w", file, what, err)
}

func isKustomization(file string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file))
}

// patchesOf returns the files that the kustomizations among the files use as patches.
// Those that cannot be read are reported when they are converted.
func patchesOf(files []string) map[string]bool {
	patches := map[string]bool{}
	for _, file := range files {
		if !isKustomization(file) {
			continue
		}
		text, err := os.ReadFile(file)
		var k types.Kustomization
		if err != nil || yaml.Unmarshal(text, &k) != nil {
			continue // the conversion of the file reports it
		}
		dir := filepath.Dir(file)
		for _, patch := range k.PatchesStrategicMerge { //nolint:staticcheck // kustomizations of old releases have the deprecated field
			patches[filepath.Join(dir, string(patch))] = true
		}
		for _, patch := range k.Patches {
			if patch.Path != "" {
				patches[filepath.Join(dir, patch.Path)] = true
			}
		}
	}
	return patches
}

// add converts the text of one file.
func (r *Result) add(c *convert.Converter, name, text string, inDirectory bool) {
	after, outcomes, err := c.File(name, text)
	mistakes := each(err)
	for i := 0; err == nil && !inDirectory && i < len(outcomes); i++ {
		if o := outcomes[i]; o.NotChecked == convert.NoObject {
			mistakes = append(mistakes, fmt.Errorf("%s:%d: %s", name, o.Line, o.NotChecked))
		}
	}
	for _, err := range mistakes {
		var mistake *manifest.Error
		if inDirectory && errors.As(err, &mistake) && (mistake.Template || strings.HasSuffix(name, ".json")) {
			// A directory has other files than manifests.
			reason := "no manifest: " + mistake.Err.Error()
			if mistake.Template {
				reason = "template: render it first, as with \"helm template\""
			}
			r.Outcomes = append(r.Outcomes, convert.Outcome{File: name, Line: mistake.Line, NotChecked: reason})
			return
		}
	}
	if len(mistakes) == 0 {
		r.Files = append(r.Files, File{Name: name, Before: text, After: after})
	} else {
		r.Errors = append(r.Errors, mistakes...)
		keep(outcomes, name)
	}
	r.Outcomes = append(r.Outcomes, outcomes...)
}

// keep notes that the changes to objects are not written.
func keep(outcomes []convert.Outcome, file string) {
	for i := range outcomes {
		if o := &outcomes[i]; o.File == file {
			o.Kept = len(o.Changes) > 0
		}
	}
}

// each returns the errors that are joined in one.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// leaveOut reports whether a file of a directory is a symbolic link that cannot be read as
// a file, and records what was not checked.
func (r *Result) leaveOut(file string) bool {
	info, err := os.Stat(file)
	reason := ""
	switch {
	case errors.Is(err, syscall.ELOOP):
		reason = "symbolic link that refers to itself"
	case errors.Is(err, fs.ErrNotExist):
		reason = "symbolic link to a file that does not exist"
	case err == nil && info.IsDir():
		reason = "symbolic link to a directory: name the directory, too"
	case err == nil && !info.Mode().IsRegular():
		reason = "symbolic link to what is no file"
	default:
		return false // reading it reports other errors
	}
	r.Outcomes = append(r.Outcomes, convert.Outcome{File: file, Line: 1, NotChecked: reason})
	return true
}

// find returns the files of a directory in order, or the file itself. Symbolic links are
// among them unless they are other names of files and directories that are read.
func find(name string) (files []string, isDirectory bool, err error) {
	var links []string
	info, err := os.Stat(name)
	if err != nil {
		return nil, false, failed(name, "cannot be read", err)
	}
	if !info.IsDir() {
		return []string{name}, false, nil
	}
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return failed(path, "cannot be read", err)
		case path != name && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type()&fs.ModeSymlink != 0:
			links = append(links, path)
		case entry.Type().IsRegular() && isManifest(path):
			files = append(files, path)
		}
		return nil
	})
	return slices.Sorted(slices.Values(append(files, unread(name, files, links)...))), true, err
}

func isManifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

// target returns the path that a path leads to through symbolic links, or the path itself if
// it leads nowhere, which is reported when it is read.
func target(path string) string {
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return to
}

// inside returns the path within a directory that a path leads to, and whether it leads there.
func inside(dir, path string) (string, bool) {
	within, err := filepath.Rel(target(dir), target(path))
	return within, err == nil && filepath.IsLocal(within)
}

// isHidden reports whether a path within a directory is one of those that are left out.
func isHidden(within string) bool {
	return slices.ContainsFunc(strings.Split(within, string(filepath.Separator)), func(name string) bool {
		return strings.HasPrefix(name, ".") && name != "."
	})
}

// unread returns those symbolic links of a directory that are no other names of what is
// read already.
func unread(dir string, files, links []string) []string {
	read := map[string]bool{}
	for _, file := range files {
		read[target(file)] = true
	}
	return slices.DeleteFunc(links, func(link string) bool {
		to := target(link)
		if info, err := os.Stat(to); err == nil && info.IsDir() {
			within, isInside := inside(dir, link)
			return isInside && !isHidden(within)
		}
		if read[to] || !isManifest(link) {
			return true
		}
		read[to] = to != link
		return false
	})
}

// Write writes the files that have changed, each as a whole or not at all. It adds to Errors
// what cannot be written: such a file stays as it is. If one of them is outside of the
// directory that was named, nothing is written.
func (r *Result) Write() {
	for _, f := range r.Files {
		if f.Outside && f.Before != f.After {
			r.Errors = append(r.Errors, fmt.Errorf("%s: symbolic link to a file outside of the directory: convert that file by its own name first; nothing was written", f.Name))
			for _, f := range r.Files {
				keep(r.Outcomes, f.Name)
			}
			return
		}
	}
	for _, f := range r.Files {
		if f.Before == f.After {
			continue
		}
		if err := write(f.Name, f.After); err != nil {
			r.Errors = append(r.Errors, failed(f.Name, "cannot be written", err))
			keep(r.Outcomes, f.Name)
		}
	}
}

// write replaces a file, or what a link refers to, and keeps its permissions, and its owner
// as far as the user may: root may keep any.
func write(name, text string) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(name), ".svc-convert-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(text)
	err = errors.Join(err, keepOwner(temporary, info), temporary.Chmod(info.Mode()), temporary.Sync(), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}

// keepOwner gives a file the owner and the group of another one. Users other than root may not
// give files away, and only to their own groups: otherwise a file stays theirs.
func keepOwner(file *os.File, as fs.FileInfo) error {
	stat, ok := as.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	err := file.Chown(int(stat.Uid), int(stat.Gid))
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		if err = file.Chown(-1, int(stat.Gid)); errors.Is(err, fs.ErrPermission) {
			return nil
		}
	}
	return err
}
