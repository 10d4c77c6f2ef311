package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"
)

var (
	// ErrInUse means that another process has the database open.
	ErrInUse = errors.New("in use by another process")
	// ErrCorrupt means that the files in the directory are not those of a complete
	// etcd member.
	ErrCorrupt = errors.New("corrupt")
)

// lockWait is how long to wait for the lock of the database: a member that is
// stopping releases it within that time.
const lockWait = time.Second

// checkDir returns an error unless a member can run in dir. It runs before etcd
// starts, because etcd itself would panic, fault or wait without end, and would cut
// a damaged log at the damage.
func checkDir(dir string) error {
	err := dirIsWritable(dir)
	var applied uint64
	if err == nil {
		applied, err = databaseIsReadable(dir)
	}
	switch {
	case err != nil:
	case applied == 0:
		err = removeIncomplete(dir)
	default:
		err = logIsComplete(dir, applied)
	}
	if err != nil {
		return explain(dir, err)
	}
	return nil
}

func dirIsWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the etcd directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("keep others out of the etcd directory: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return fmt.Errorf("write to the etcd directory: %w", err)
	}
	defer os.Remove(probe.Name())
	defer probe.Close()
	if _, err := probe.Write(make([]byte, 4096)); err != nil {
		return fmt.Errorf("write to the etcd directory: %w", err)
	}
	if err := probe.Sync(); err != nil {
		return fmt.Errorf("write to the etcd directory: %w", err)
	}
	return nil
}

// databaseIsReadable returns an error if another process has locked the database,
// or if the database is not one, is truncated, or has pages of the wrong type.
// etcd would not survive reading such a database.
func databaseIsReadable(dir string) (applied uint64, err error) {
	path := filepath.Join(dir, "member", "snap", "db")
	stat, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if hasLog(dir) {
			return 0, fmt.Errorf("%s: %w: the log (member/wal) exists, the database does not", path, ErrCorrupt)
		}
		return 0, nil
	case err != nil:
		return 0, err
	case stat.Size() == 0 && hasLog(dir):
		return 0, fmt.Errorf("%s: %w: it is empty", path, ErrCorrupt)
	case stat.Size() == 0: // a first start was killed here
		return 0, nil
	}
	// The database is mapped into memory: reading a page beyond the end of the file
	// faults, which ends the process unless the fault is turned into a panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v", path, ErrCorrupt, r)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockWait})
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		return 0, fmt.Errorf("%s: %w", path, ErrInUse)
	case errors.Is(err, fs.ErrPermission):
		return 0, err
	case err != nil:
		return 0, fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		if size := tx.Size(); size > stat.Size() {
			return fmt.Errorf("%s: %w: it has %d bytes and should have %d", path, ErrCorrupt, stat.Size(), size)
		}
		// A member that was killed during its first start has a database without a
		// log and without applied entries; it is not corrupt.
		if applied = appliedEntries(tx); applied > 0 && !hasLog(dir) {
			return fmt.Errorf("%s: %w: the database exists, the log (member/wal) does not", path, ErrCorrupt)
		} else if applied > 0 && logIsEmpty(dir) {
			return fmt.Errorf("%s: %w: the database exists, the log (member/wal) is empty", path, ErrCorrupt)
		}
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			_ = bucket.Stats() // reads every page, and panics at one of the wrong type
			return nil
		})
	})
	return applied, err
}

// logIsComplete returns an error unless the log can be read up to the last entry that the
// database has. If its end was lost, new writes would be taken for entries that the database
// has. Only the files from that entry on are read.
func logIsComplete(dir string, applied uint64) (err error) {
	path := filepath.Join(dir, "member", "wal")
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v", path, ErrCorrupt, r)
		}
	}()
	entries, err := entriesOf(path, applied)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	case len(entries) == 0 || entries[len(entries)-1].GetIndex() < applied:
		return fmt.Errorf("%s: %w: the log ends before entry %d, which the database has", path, ErrCorrupt, applied)
	}
	return nil
}

// entriesOf returns the entries of a log from one on, or from an earlier one. A log with a
// snapshot of the entry before the first one can be read only with the term of that entry,
// which only the log has.
func entriesOf(path string, first uint64) ([]*raftpb.Entry, error) {
	for after := first - 1; ; after-- {
		log, err := openLog(path, after)
		if err != nil {
			return nil, err
		}
		_, _, entries, err := log.ReadAll()
		_ = log.Close() // always fails: a log that is only read has no directory to close
		switch {
		case errors.Is(err, wal.ErrSnapshotMismatch) && after > 0:
		case err != nil && !errors.Is(err, wal.ErrSnapshotNotFound): // there need not be one
			return nil, err
		default:
			return entries, nil
		}
	}
}

// openLog opens a log for reading the entries after one, and panics at what etcd cannot
// survive.
func openLog(path string, after uint64) (*wal.WAL, error) {
	logger := zap.NewNop().WithOptions(zap.WithFatalHook(zapcore.WriteThenPanic))
	return wal.OpenForRead(logger, path, &walpb.Snapshot{Index: &after})
}

// appliedEntries returns the number of log entries that are applied to the database.
func appliedEntries(tx *bbolt.Tx) uint64 {
	meta := tx.Bucket([]byte("meta"))
	if meta == nil {
		return 0
	}
	index := meta.Get([]byte("consistent_index"))
	if len(index) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(index)
}

// removeIncomplete removes a member that was killed in its first start after it
// had created its log, but before it had written its own membership to the log:
// such a member could never become leader. It has committed nothing, and so it has
// acknowledged nothing.
func removeIncomplete(dir string) (err error) {
	if !hasLog(dir) {
		return nil
	}
	member := filepath.Join(dir, "member")
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w: %v", member, ErrCorrupt, r)
		}
	}()
	log, err := openLog(filepath.Join(member, "wal"), 0)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	_, state, _, err := log.ReadAll()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if state.GetCommit() > 0 {
		return nil
	}
	if err := os.RemoveAll(member); err != nil {
		return fmt.Errorf("remove the files of an interrupted first start: %w", err)
	}
	return nil
}

func hasLog(dir string) bool {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	return err == nil && len(logs) > 0
}

// logIsEmpty reports whether no file of the log has content; etcd would not survive
// reading it.
func logIsEmpty(dir string) bool {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	return err == nil && !slices.ContainsFunc(logs, func(file string) bool {
		stat, err := os.Stat(file)
		return err != nil || stat.Size() > 0
	})
}

// explain adds the remedy to an error in dir.
func explain(dir string, err error) error {
	switch {
	case errors.Is(err, ErrInUse):
		return fmt.Errorf("%w: stop that process, or choose another directory", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk under %s is full: free at least 256 MiB, or choose another directory: %w", dir, err)
	case errors.Is(err, syscall.EIO):
		return fmt.Errorf("the disk under %s has I/O errors: choose another, and restore a backup there: %w", dir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is not writable: choose another directory, or give this user access: %w", dir, err)
	case errors.Is(err, ErrCorrupt):
		return fmt.Errorf("%w; restore a backup, or move %s away to start empty", err, dir)
	case isUnreadable(err):
		return fmt.Errorf("%s: %w: %w; restore a backup, or move it away to start empty", dir, ErrCorrupt, err)
	}
	return fmt.Errorf("start etcd in %s: %w", dir, err)
}

// isUnreadable reports whether err is one of etcd's errors about the content of
// its files.
func isUnreadable(err error) bool {
	if fatal := (*fatalError)(nil); errors.As(err, &fatal) {
		return true
	}
	return slices.ContainsFunc([]error{
		walpb.ErrCRCMismatch, wal.ErrCRCMismatch, wal.ErrMetadataConflict,
		wal.ErrFileNotFound, wal.ErrSnapshotNotFound, wal.ErrSnapshotMismatch, wal.ErrSliceOutOfRange,
		proto.Error, io.ErrUnexpectedEOF,
	}, func(unreadable error) bool { return errors.Is(err, unreadable) })
}
