package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout writes an OCI layout with one image, under the name by which it is
// imported.
func writeLayout(directory string, ref name.Tag, index v1.ImageIndex) error {
	path, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(),
		"io.containerd.image.name":          ref.Name(),
	}))
}

// archive writes a tar file of a directory, whose bytes depend on nothing but the names
// and the content of the files.
func archive(directory, path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	err = filepath.WalkDir(directory, func(file string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || file == directory {
			return err
		}
		relative, err := filepath.Rel(directory, file)
		if err != nil {
			return err
		}
		return add(w, file, filepath.ToSlash(relative), entry)
	})
	return errors.Join(err, w.Close(), out.Close())
}

func add(w *tar.Writer, file, name string, entry fs.DirEntry) error {
	if entry.IsDir() {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimSuffix(name, "/") + "/", Mode: 0o755, ModTime: epoch})
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), ModTime: epoch}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
