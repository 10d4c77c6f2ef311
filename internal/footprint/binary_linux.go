package footprint

import (
	"bufio"
	"fmt"
	"os"
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
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if segment, ok := readOnlySegment(lines.Text(), executable); ok {
			if err := segment.drop(); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// segment is a range of addresses.
type segment struct{ from, to uintptr }

// readOnlySegment reads a line of /proc/PID/maps (proc_pid_maps(5)): the range,
// the permissions, offset, device, inode and file. A segment that may be
// written can hold pages that differ from the file; it is not one of these.
func readOnlySegment(line, file string) (segment, bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[5] != file || !strings.HasPrefix(fields[1], "r-") || !strings.HasSuffix(fields[1], "p") {
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
