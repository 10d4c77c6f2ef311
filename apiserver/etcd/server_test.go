package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

func TestAMemberServesWhatWasWrittenBeforeARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := start(t, Config{Dir: dir})
	put(t, s, "key", "value")
	s.Stop()

	began := time.Now()
	s = start(t, Config{Dir: dir})
	t.Logf("ready again after %v", time.Since(began))
	if got := get(t, s, "key"); got != "value" {
		t.Errorf("got %q after the restart, want %q", got, "value")
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a healthy member reports %v", err)
	}
}

func TestAMemberListensOnASocketThatOnlyItsUserCanAccess(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long-", 40))
	for name, dir := range map[string]string{"in the directory": t.TempDir(), "path too long for a socket": long} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Config{Dir: dir})
			endpoints := s.Endpoints()
			if len(endpoints) != 1 || !strings.HasPrefix(endpoints[0], "unix:///") {
				t.Fatalf("endpoints: %q, want one unix:///", endpoints)
			}
			path := strings.TrimPrefix(endpoints[0], "unix://")
			if len(path) > maxSocketPath {
				t.Errorf("%s has %d bytes", path, len(path))
			}
			stat, err := os.Stat(filepath.Dir(path))
			if err != nil {
				t.Fatal(err)
			}
			if stat.Mode().Perm()&0o077 != 0 && !strings.HasPrefix(path, t.TempDir()) {
				t.Errorf("%s has mode %v", filepath.Dir(path), stat.Mode())
			}
			put(t, s, "key", "value")
			s.Stop()
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket is still there after Stop: %v", err)
			}
		})
	}
}

func TestErrorsOfStartNameTheDirectoryAndTheFault(t *testing.T) {
	db := func(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   error
		says   string
	}{
		{"the database is garbage", func(t *testing.T, dir string) {
			write(t, db(dir), strings.Repeat("garbage ", 4096))
		}, ErrCorrupt, "restore a backup"},
		{"the database is empty", func(t *testing.T, dir string) {
			write(t, db(dir), "")
		}, ErrCorrupt, "member/snap/db"},
		{"the database is cut short", func(t *testing.T, dir string) {
			if err := os.Truncate(db(dir), 8192); err != nil {
				t.Fatal(err)
			}
		}, ErrCorrupt, "it has 8192 bytes"},
		{"pages of the database are damaged", func(t *testing.T, dir string) {
			overwrite(t, db(dir), 5*os.Getpagesize(), strings.Repeat("garbage ", 4096))
		}, ErrCorrupt, "member/snap/db"},
		{"the database is missing", func(t *testing.T, dir string) {
			remove(t, db(dir))
		}, ErrCorrupt, "the log (member/wal) exists, the database does not"},
		{"the log is missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "member", "wal"))
		}, ErrCorrupt, "the database exists, the log (member/wal) does not"},
		{"the log is garbage", func(t *testing.T, dir string) {
			write(t, theLog(t, dir), strings.Repeat("garbage ", 4096))
		}, ErrCorrupt, "restore a backup"},
		{"the log is empty", func(t *testing.T, dir string) {
			write(t, theLog(t, dir), "")
		}, ErrCorrupt, "the database exists, the log (member/wal) is empty"},
		{"the head of the log is damaged", func(t *testing.T, dir string) {
			flip(t, theLog(t, dir), 40)
		}, ErrCorrupt, "restore a backup"},
		{"the frame of a record of the log is damaged", func(t *testing.T, dir string) {
			flip(t, theLog(t, dir), 2000)
		}, ErrCorrupt, "restore a backup"},
		{"the log has lost its end", func(t *testing.T, dir string) {
			loseEnd(t, theLog(t, dir), 20)
		}, ErrCorrupt, "the log ends before entry"},
		{"a record of the log is damaged", func(t *testing.T, dir string) {
			flip(t, theLog(t, dir), 2300)
		}, ErrCorrupt, "restore a backup"},
		{"the directory is a file", func(t *testing.T, dir string) {
			remove(t, dir)
			write(t, dir, "a file")
		}, syscall.ENOTDIR, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etcd")
			s := start(t, Config{Dir: dir})
			for i := range 100 {
				put(t, s, fmt.Sprintf("key-%d", i), strings.Repeat("value", 100))
			}
			s.Stop()
			tc.damage(t, dir)
			before := contents(t, dir)
			s, err := Start(t.Context(), Config{Dir: dir})
			if err == nil {
				s.Stop()
				t.Fatal("started")
			}
			if after := contents(t, dir); !maps.Equal(before, after) {
				t.Errorf("the files were %v, and are %v", before, after)
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %v saying %q and naming %s", err, tc.want, tc.says, dir)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			t.Log(err)
		})
	}
}

func TestAFirstStartThatWasKilledIsRepeated(t *testing.T) {
	for name, left := range map[string]func(t *testing.T, dir string){
		"before the database had content": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "member", "snap", "db"), "")
		},
		"before there was a log": func(t *testing.T, dir string) {
			db, err := bbolt.Open(filepath.Join(dir, "db"), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
			if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "db"), filepath.Join(dir, "member", "snap", "db")); err != nil {
				t.Fatal(err)
			}
		},
		"before the log had content": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
			log, err := wal.Create(zap.NewNop(), filepath.Join(dir, "member", "wal"), nil)
			if err != nil {
				t.Fatal(err)
			}
			log.Close()
			db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			left(t, dir)
			put(t, start(t, Config{Dir: dir}), "key", "value")
		})
	}
}

func TestASecondMemberOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, Config{Dir: dir})
	second, err := Start(t.Context(), Config{Dir: dir})
	if err == nil {
		second.Stop()
	}
	if !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

func TestAFullDiskIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s, err := Start(t.Context(), Config{Dir: dir})
	if err == nil {
		s.Stop()
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "disk under "+dir+" is full") {
		t.Errorf("got %v, want a full disk under %s", err, dir)
	}
}

func TestADiskThatBecomesFullIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=140m"); err != nil {
		t.Skipf("mounting a small file system needs privileges: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	s := start(t, Config{Dir: dir})
	c := client(t, s)
	go func() {
		for i := 0; t.Context().Err() == nil; i++ {
			if _, err := c.Put(t.Context(), fmt.Sprintf("key-%d", i), strings.Repeat("x", 1<<20)); err != nil {
				return
			}
		}
	}()
	select {
	case err := <-s.Failed():
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "disk under "+dir+" is full") {
			t.Errorf("got %v, want a full disk under %s", err, dir)
		}
		if s.Check(t.Context()) == nil {
			t.Error("Check returned no error")
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("no failure")
	}
}

func TestACorruptAlarmIsReported(t *testing.T) {
	s := start(t, Config{Dir: t.TempDir()})
	_, err := s.member.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_CORRUPT, MemberID: uint64(s.member.Server.MemberID())})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Errorf("Check returned %v", err)
	}
}

func TestACanceledStartLeavesTheDirectoryFree(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Start(ctx, Config{Dir: dir}); err == nil {
		s.Stop()
	} else if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	start(t, Config{Dir: dir})
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func client(t *testing.T, s *Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, s *Server, key, value string) {
	t.Helper()
	c := client(t, s)
	defer c.Close()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Server, key string) string {
	t.Helper()
	r, err := client(t, s).Get(t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("get %s: %v, %v", key, r, err)
	}
	return string(r.Kvs[0].Value)
}

func theLog(t *testing.T, dir string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs: %v, %v", logs, err)
	}
	return logs[0]
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// overwrite writes text into a file, from offset on.
func overwrite(t *testing.T, path string, offset int, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), int64(offset)); err != nil {
		t.Fatal(err)
	}
}

// loseEnd keeps that many records of a log and clears the others, as a disk does
// that loses its last writes.
func loseEnd(t *testing.T, file string, keep int) {
	t.Helper()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	end := 0
	for range keep {
		// A record begins with its length, in the lower 56 bits, and, if the
		// topmost bit is set, with that of its padding in the three above those.
		field := int64(binary.LittleEndian.Uint64(log[end:]))
		length := int(uint64(field) & (1<<56 - 1))
		if field < 0 {
			length += int(uint64(field) >> 56 & 7)
		}
		end += 8 + length
	}
	clear(log[end:])
	if err := os.WriteFile(file, log, 0o600); err != nil {
		t.Fatal(err)
	}
}

// contents returns the files in a directory, with a hash of each.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%x", sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func flip(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xff
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
}

func TestTheWholeLogIsAsLongAsEtcdsByDefault(t *testing.T) {
	for _, whole := range []bool{false, true} {
		got, defaults := (&Server{}).embedConfig(Config{WholeLog: whole}), embed.NewConfig()
		if is := got.SnapshotCatchUpEntries == defaults.SnapshotCatchUpEntries && got.SnapshotCount == defaults.SnapshotCount; is != whole {
			t.Errorf("whole log %v: %d entries in memory and %d until a snapshot, by default %d and %d",
				whole, got.SnapshotCatchUpEntries, got.SnapshotCount, defaults.SnapshotCatchUpEntries, defaults.SnapshotCount)
		}
	}
}
