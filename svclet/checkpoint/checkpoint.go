// Package checkpoint owns the files in which the agent keeps what it has allocated: their
// format, their version and their checksum.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File is a checkpoint.
type File struct {
	Path string
	// Version is the version of the content; a file of another one is refused.
	Version int
}

// envelope is the format of the file. The checksum is of the compact form of the data.
type envelope struct {
	Version  int             `json:"version"`
	Data     json.RawMessage `json:"data"`
	Checksum string          `json:"checksum"`
}

// Load reads the content into data, and reports whether there is a file.
func (f File) Load(data any) (found bool, err error) {
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the checkpoint: %w", err)
	}
	var e envelope
	var compact bytes.Buffer
	if err := json.Unmarshal(text, &e); err != nil {
		return false, f.Unusable("it is damaged: " + err.Error())
	}
	if e.Version != f.Version {
		return false, f.Unusable(fmt.Sprintf("it has version %d, this svclet writes version %d", e.Version, f.Version))
	}
	if err := json.Compact(&compact, e.Data); err != nil {
		return false, f.Unusable("it is damaged: " + err.Error())
	}
	if sum := checksum(compact.Bytes()); sum != e.Checksum {
		return false, f.Unusable("it is damaged: the checksum is wrong")
	}
	if err := json.Unmarshal(e.Data, data); err != nil {
		return false, f.Unusable("it is damaged: " + err.Error())
	}
	return true, nil
}

// Unusable returns the error for a checkpoint that cannot be used, with the remedy.
func (f File) Unusable(why string) error {
	return fmt.Errorf("%s: %s; drain the node, remove this file and start svclet again", f.Path, why)
}

// Save replaces the content. A crash leaves the old content or the new one.
func (f File) Save(data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	text, err := json.Marshal(envelope{Version: f.Version, Data: encoded, Checksum: checksum(encoded)})
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return Replace(f.Path, text)
}

// Replace replaces a file, which only its owner may read, in a directory that exists. A crash,
// also of the machine, leaves the old content or the new one; after Replace it is the new one.
func Replace(path string, content []byte) error { return ReplaceMode(path, content, 0o600) }

// ReplaceMode is [Replace] of a file with this mode.
func ReplaceMode(path string, content []byte, mode fs.FileMode) error {
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(next.Name()) // fails after the rename
	_, err = next.Write(content)
	if err == nil {
		err = next.Chmod(mode)
	}
	if err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err == nil {
		err = Sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Sync writes a directory to its disk: after that the names in it outlast a crash of the machine
// (fsync(2)). A filesystem that does not offer this for directories is no error.
func Sync(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = file.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
