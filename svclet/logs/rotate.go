package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// stamp is the format of the time, in the node's time zone, in the name of a
	// rotated log.
	stamp            = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"
)

// errFull ends the compression of a rotated log: the current one is to be rotated.
var errFull = errors.New("the current log has reached its maximum size")

// rotate makes the runtime write to a new file if the log is too large or does not
// exist. Only then it compresses the log of the rotation before: that takes time in which
// the container writes on, and fails on a full disk. It is crash-safe: an input file is
// removed only after its output is on disk under its final name, and the next rotation
// cleans up.
func (m *Manager) rotate(ctx context.Context, containerID, path string) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	// All paths below are relative to this directory, which links cannot leave.
	defer dir.Close()
	log := filepath.Base(path)
	info, err := dir.Lstat(log)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// An earlier rotation moved the log and did not complete.
		return m.options.Runtime.ReopenLog(ctx, containerID)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Size() < m.options.MaxSize:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	p, err := m.makeRoom(dir, log)
	if err != nil {
		return err
	}
	if err := m.startNewLog(ctx, dir, log, containerID, p.newest); err != nil {
		return err
	}
	return m.compressAll(ctx, dir, log, p.compress)
}

// makeRoom makes room for one more rotated log. It returns what else is to be done.
func (m *Manager) makeRoom(dir *os.Root, log string) (plan, error) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return plan{}, err
	}
	p := planFor(log, entries, m.options.MaxFiles)
	for _, name := range p.remove {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return plan{}, err
		}
	}
	return p, nil
}

// compressAll compresses rotated logs until the current one is full again: a container
// that writes faster than its logs can be compressed would fill the disk. What is left is
// compressed, or removed, at a later rotation.
func (m *Manager) compressAll(ctx context.Context, dir *os.Root, log string, names []string) error {
	mayGoOn := func() error {
		if info, err := dir.Lstat(log); err == nil && info.Size() >= m.options.MaxSize {
			return errFull
		}
		return ctx.Err()
	}
	var errs []error
	for _, name := range names {
		err := compress(dir, name, mayGoOn)
		if errors.Is(err, errFull) {
			break
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to compress log %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// plan is what to do with rotated logs before the next rotation.
type plan struct {
	remove, compress []string
	newest           string
}

// planFor removes leftovers of an interrupted rotation (incomplete files, and
// inputs that have been compressed) and everything that is not a regular file,
// such as a pipe, which would block. Of the rotated logs it removes the oldest, so
// that with the log to be rotated and the new one there are at most maxFiles; the
// others are compressed. Other files are left alone.
func planFor(log string, entries []fs.DirEntry, maxFiles int) plan {
	var p plan
	var rotated []string
	names := map[string]bool{} // whether each is a regular file
	for _, entry := range entries {
		names[entry.Name()] = entry.Type().IsRegular()
	}
	for name, isFile := range names {
		bare, unfinished := strings.CutSuffix(name, unfinishedSuffix)
		at, ours := stampOf(log, strings.TrimSuffix(bare, compressedSuffix))
		switch {
		case !ours:
		case unfinished, !isFile, names[name+compressedSuffix]:
			p.remove = append(p.remove, name)
		default:
			rotated = append(rotated, name)
			p.newest = max(p.newest, at)
		}
	}
	slices.Sort(rotated)
	excess := max(len(rotated)-(maxFiles-2), 0)
	p.remove = append(p.remove, rotated[:excess]...)
	for _, name := range rotated[excess:] {
		if !strings.HasSuffix(name, compressedSuffix) {
			p.compress = append(p.compress, name)
		}
	}
	slices.Sort(p.remove)
	return p
}

// stampOf returns the timestamp in the name of a rotated log, if it is this log's.
func stampOf(log, name string) (string, bool) {
	at, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return "", false
	}
	_, err := time.Parse(stamp, at)
	return at, err == nil
}

// nextStamp returns the timestamp of a rotation: now, or a second after the last
// one if the clock was set back. So names are in rotation order, and no file is
// overwritten.
func nextStamp(now time.Time, newest string) string {
	next := now.Format(stamp)
	if next > newest {
		return next
	}
	last, err := time.Parse(stamp, newest)
	if err != nil {
		return next
	}
	return last.Add(time.Second).Format(stamp)
}

// startNewLog renames the log and has the runtime open a new one. If that fails, the
// log is renamed back.
func (m *Manager) startNewLog(ctx context.Context, dir *os.Root, log, containerID, newest string) error {
	rotated := log + "." + nextStamp(m.options.Clock.Now(), newest)
	if err := dir.Rename(log, rotated); err != nil {
		return fmt.Errorf("failed to rotate log %q to %q: %w", log, rotated, err)
	}
	err := m.options.Runtime.ReopenLog(ctx, containerID)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("failed to reopen container log %q: %w", containerID, err)
	if _, missing := dir.Lstat(log); errors.Is(missing, fs.ErrNotExist) {
		return errors.Join(err, dir.Rename(rotated, log))
	}
	// The runtime has opened a new log nonetheless.
	return err
}

// compress replaces a rotated log by a compressed one. It ends with the first error of
// mayGoOn.
func compress(dir *os.Root, name string, mayGoOn func() error) error {
	from, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	unfinished := name + compressedSuffix + unfinishedSuffix
	if err := write(dir, unfinished, info.Mode().Perm(), reader{mayGoOn, from}); err != nil {
		return errors.Join(err, dir.Remove(unfinished))
	}
	if err := dir.Rename(unfinished, name+compressedSuffix); err != nil {
		return err
	}
	return dir.Remove(name)
}

// write compresses the input to a new file and syncs it to disk.
func write(dir *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer to.Close()
	zip := gzip.NewWriter(to)
	if _, err := io.Copy(zip, from); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return to.Sync()
}

// reader is a reader that ends with the first error of mayGoOn.
type reader struct {
	mayGoOn func() error
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.mayGoOn(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
