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
	// stamp is the format of the time, the node's local one, at the end of a
	// rotated log's name.
	stamp            = "20060102-150405"
	compressedSuffix = ".gz"
	unfinishedSuffix = ".tmp"
)

// rotate makes the runtime write to a new file if the log is too large, or is
// not there. A crash at any point leaves nothing that the next rotation does
// not put in order: what is read is removed only when what was made of it is
// on disk under its final name.
func (m *Manager) rotate(ctx context.Context, containerID, path string) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	// All that is done here stays below this directory, wherever links lead.
	defer dir.Close()
	log := filepath.Base(path)
	info, err := dir.Lstat(log)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// It was moved, and then something came between.
		return m.options.Runtime.ReopenLog(ctx, containerID)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case info.Size() < m.options.MaxSize:
		return nil
	}
	newest, err := m.tidy(ctx, dir, log)
	if err != nil {
		return err
	}
	return m.moveOn(ctx, dir, log, containerID, newest)
}

// tidy makes room for one more rotated log and compresses the others. It
// returns the time of the newest, as its name has it.
func (m *Manager) tidy(ctx context.Context, dir *os.Root, log string) (newest string, err error) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return "", err
	}
	p := planFor(log, entries, m.options.MaxFiles)
	for _, name := range p.remove {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	for _, name := range p.compress {
		if err := compress(ctx, dir, name); err != nil {
			return "", fmt.Errorf("failed to compress log %q: %w", name, err)
		}
	}
	return p.newest, nil
}

// plan is what is to be done about rotated logs before another one.
type plan struct {
	remove, compress []string
	newest           string
}

// planFor removes what a rotation that broke off has left: what was not
// finished, and what has been compressed already; and what is no file, such as
// a pipe, of which reading would never end. Of the rest the oldest go,
// so that there are at most as many as allowed with the log that is about to be
// rotated and the one to come; those that stay are compressed. Files that are
// not this log's rotated ones are left alone.
func planFor(log string, entries []fs.DirEntry, maxFiles int) plan {
	var p plan
	var rotated []string
	names := map[string]bool{} // and whether they are those of files
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

// stampOf is the time in the name of a rotated log, if it is this log's.
func stampOf(log, name string) (string, bool) {
	at, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return "", false
	}
	_, err := time.Parse(stamp, at)
	return at, err == nil
}

// nextStamp is the time for a rotation: now, or a second after the last one if
// the clock has been turned back. Names are in the order of rotations, and no
// log ever takes the place of another.
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

// moveOn moves the log away and has the runtime begin a new one. If it does
// not, the log is put back.
func (m *Manager) moveOn(ctx context.Context, dir *os.Root, log, containerID, newest string) error {
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
	// The runtime has begun a new one after all.
	return err
}

// compress replaces a rotated log by a compressed one.
func compress(ctx context.Context, dir *os.Root, name string) error {
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
	if err := write(ctx, dir, unfinished, info.Mode().Perm(), from); err != nil {
		return errors.Join(err, dir.Remove(unfinished))
	}
	if err := dir.Rename(unfinished, name+compressedSuffix); err != nil {
		return err
	}
	return dir.Remove(name)
}

// write compresses what it reads to a new file and sees it on disk.
func write(ctx context.Context, dir *os.Root, name string, mode fs.FileMode, from io.Reader) error {
	to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer to.Close()
	zip := gzip.NewWriter(to)
	if _, err := io.Copy(zip, reader{ctx, from}); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return to.Sync()
}

// reader reads until its context ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
