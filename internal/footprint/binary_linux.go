package footprint

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// unmapBinary drops the mapped pages of the executable's read-only segments.
// The segments stay: a page that is touched again is read from the file.
func unmapBinary() error {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	offsets, err := readOnlyOffsets("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if segment, ok := readOnlySegment(lines.Text(), executable, offsets); ok {
			if err := segment.drop(); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// readOnlyOffsets returns the offsets in an executable at which mappings of segments
// begin that are never written (elf(5)). A dynamic linker writes to others, such as the
// addresses of functions, before it protects them: their mappings are read-only, too,
// but their pages differ from the file.
func readOnlyOffsets(path string) (map[uint64]bool, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	offsets := map[uint64]bool{}
	page := uint64(os.Getpagesize())
	for _, writable := range []bool{false, true} {
		for _, p := range file.Progs {
			if p.Type == elf.PT_LOAD && (p.Flags&elf.PF_W != 0) == writable {
				offsets[p.Off&^(page-1)] = !writable
			}
		}
	}
	return offsets, nil
}

// segment is a range of addresses.
type segment struct{ from, to uintptr }

// readOnlySegment reads a line of /proc/PID/maps (proc_pid_maps(5)): the range,
// the permissions, offset, device, inode and file. A segment that may be
// written, or may have been before, can hold pages that differ from the file; it is
// not one of these. offsets are the result of readOnlyOffsets.
func readOnlySegment(line, file string, offsets map[uint64]bool) (segment, bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != file || !strings.HasPrefix(fields[1], "r-") || !strings.HasSuffix(fields[1], "p") {
		return segment{}, false
	}
	if offset, err := strconv.ParseUint(fields[2], 16, 64); err != nil || !offsets[offset] {
		return segment{}, false
	}
	var s segment
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &s.from, &s.to); err != nil || s.to <= s.from {
		return segment{}, false
	}
	return s, true
}

func (s segment) drop() error {
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, s.from, s.to-s.from, syscall.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("unmap the binary's pages at %x: %w", s.from, errno)
	}
	return nil
}
