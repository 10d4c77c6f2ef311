package pki

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// makePrivateDir creates dir, and removes the access of other users.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of certificates: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("keep others out of the directory of certificates: %w", err)
	}
	return nil
}

// readFile returns the content of a file, or nil if it does not exist. It removes
// the access of other users.
func readFile(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("read a file of the PKI: %w: give this user access to it, or choose another directory", err)
	case err != nil:
		return nil, fmt.Errorf("read a file of the PKI: %w", err)
	}
	if stat, err := os.Stat(path); err == nil && stat.Mode().Perm()&0o077 == 0 {
		return content, nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("keep others out of a file of the PKI: %w", err)
	}
	return content, nil
}

// writeFile replaces the content of path atomically, and returns when it is on the
// disk. The directory has one writer, so it can overwrite a temporary file that a
// crash has left.
func writeFile(path string, content []byte) error {
	dir, name := filepath.Split(path)
	temporary := filepath.Join(dir, "."+name+".tmp")
	if err := writeSynced(temporary, content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func writeSynced(path string, content []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}

func syncDir(path string) (err error) {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	return dir.Sync()
}

func encodePublicKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: der})
}
