package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func measureVolume(ctx context.Context, v mountedVolume) (Usage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(v.HostPath, &s); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: v.HostPath, Err: err}
	}
	block := uint64(s.Bsize)
	usage := Usage{
		Name: v.name, Claim: v.claim,
		Available: s.Bavail * block, Capacity: s.Blocks * block, Used: (s.Blocks - s.Bfree) * block,
		InodeCount: s.Files, InodesFree: s.Ffree, InodesUsed: s.Files - s.Ffree,
	}
	if v.measure == measureFilesystem {
		return usage, nil
	}
	sum := &sum{linked: map[uint64]bool{}}
	dir, err := os.Open(v.HostPath)
	if err != nil {
		return Usage{}, err
	}
	defer dir.Close()
	var top unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &top); err != nil {
		return Usage{}, &os.PathError{Op: "fstat", Path: v.HostPath, Err: err}
	}
	sum.add(&top)
	err = sum.walk(ctx, dir, 0)
	usage.Used, usage.InodesUsed = sum.bytes, sum.inodes
	return usage, err
}

// maxWalk is how deep directories are measured, which bounds the open directories.
const maxWalk = 1000

// sum adds up the content of a directory as du does: a file with several links
// counts once, other file systems do not count.
type sum struct {
	bytes, inodes uint64
	linked        map[uint64]bool
}

func (s *sum) add(stat *unix.Stat_t) {
	// st_blocks is in units of 512 bytes on every file system.
	s.bytes += uint64(stat.Blocks) * 512
	s.inodes++
}

// walk adds the content of an open directory. Names that are removed or replaced
// meanwhile do not count.
func (s *sum) walk(ctx context.Context, dir *os.File, depth int) error {
	if depth > maxWalk {
		return fmt.Errorf("directories are nested more than %d deep", maxWalk)
	}
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if err := s.entry(ctx, dir, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *sum) entry(ctx context.Context, dir *os.File, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var stat unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		if stat.Nlink > 1 {
			if s.linked[stat.Ino] {
				return nil
			}
			s.linked[stat.Ino] = true
		}
		s.add(&stat)
		return nil
	}
	child, err := openDirectory(dir, name)
	if err != nil {
		return nil
	}
	defer child.Close()
	s.add(&stat)
	return s.walk(ctx, child, depth+1)
}
