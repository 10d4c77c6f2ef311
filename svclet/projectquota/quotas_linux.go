package projectquota

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"structs"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// firstID is the lowest project ID of directories: kubelet's, above those that people choose.
const firstID = 1<<20 + 1

// Quotas give directories project IDs of their own. Its methods are safe for concurrent use.
type Quotas struct {
	kernel kernel
	// etc is the directory of the administrator's lists of projects.
	etc string

	mu   sync.Mutex
	next uint32
}

// New returns the quotas of the machine.
func New() *Quotas { return &Quotas{kernel: linux{}, etc: "/etc", next: firstID} }

// kernel is what the kernel does with projects.
type kernel interface {
	// attributes returns those of a file. The error is ENOTTY or EOPNOTSUPP if its file system
	// has no projects.
	attributes(file *os.File) (attributes, error)
	setAttributes(file *os.File, a attributes) error
	// quota returns the quota of a project on the file system of a file. The error is ESRCH if
	// it is mounted without project quotas, ENOSYS before Linux 5.14.
	quota(file *os.File, project uint32) (quota, error)
}

// Assign gives an empty directory a project ID that nothing else has, and that its content
// inherits. One that has an ID keeps it: its own, or the administrator's. The error says why the
// directory cannot be measured by a quota.
func (q *Quotas) Assign(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	attributes, err := q.kernel.attributes(file)
	if err != nil || attributes.project != 0 {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	id, err := q.unused(file)
	if err != nil {
		return err
	}
	attributes.project, attributes.flags = id, attributes.flags|inherit
	if err := q.kernel.setAttributes(file, attributes); err != nil {
		return err
	}
	q.next = id + 1
	return nil
}

// Usage returns the bytes and inodes of all files with the project ID of a directory; ok is
// false if it has no ID of its own from Assign.
func (q *Quotas) Usage(dir string) (bytes, inodes uint64, ok bool, err error) {
	file, err := os.Open(dir)
	if err != nil {
		return 0, 0, false, err
	}
	defer file.Close()
	attributes, err := q.kernel.attributes(file)
	if errors.Is(err, syscall.ENOTTY) || errors.Is(err, syscall.EOPNOTSUPP) {
		return 0, 0, false, nil // a file system without projects
	}
	if err != nil || attributes.project < firstID || attributes.flags&inherit == 0 {
		return 0, 0, false, err
	}
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return 0, 0, false, err
	}
	defer above.Close()
	if parent, err := q.kernel.attributes(above); err != nil || parent.project == attributes.project {
		return 0, 0, false, err // inherited: the project has other directories, too
	}
	used, err := q.kernel.quota(file, attributes.project)
	if errors.Is(err, syscall.ESRCH) {
		return 0, 0, false, nil // mounted without quotas since
	}
	return used.bytes, used.inodes, err == nil, err
}

// unused returns an ID that no file has and no administrator reserves. The caller holds mu.
func (q *Quotas) unused(file *os.File) (uint32, error) {
	reserved, err := q.reserved()
	if err != nil {
		return 0, err
	}
	for id := q.next; id >= firstID; id++ {
		if reserved[id] {
			continue
		}
		used, err := q.kernel.quota(file, id)
		switch {
		case errors.Is(err, syscall.ENOENT), err == nil && used.inodes == 0:
			return id, nil
		case err != nil:
			return 0, err
		}
	}
	return 0, fmt.Errorf("all project IDs from %d are in use", firstID)
}

// reserved returns the IDs of the administrator's projects: of "ID:directory" in /etc/projects,
// and of "name:ID" in /etc/projid.
func (q *Quotas) reserved() (map[uint32]bool, error) {
	ids := map[uint32]bool{}
	for name, field := range map[string]int{"projects": 0, "projid": 1} {
		file, err := os.Open(filepath.Join(q.etc, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			fields := strings.Split(lines.Text(), ":")
			if len(fields) <= field {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(fields[field]), 10, 32); err == nil {
				ids[uint32(id)] = true
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// The requests of ioctl_xfs_fsgetxattr(2), and the flag by which files in a directory get its
// project ID.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x00000200 // FS_XFLAG_PROJINHERIT
)

// attributes are struct fsxattr.
type attributes struct {
	_                                                   structs.HostLayout
	flags, extentSize, extents, project, copyExtentSize uint32
	_                                                   [8]byte
}

// linux is the kernel of the machine.
type linux struct{}

func (linux) attributes(file *os.File) (attributes, error) {
	var a attributes
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), getAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return a, &os.PathError{Op: "find the project of", Path: file.Name(), Err: errno}
	}
	return a, nil
}

func (linux) setAttributes(file *os.File, a attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), setAttributes, uintptr(unsafe.Pointer(&a))); errno != 0 {
		return &os.PathError{Op: "set the project of", Path: file.Name(), Err: errno}
	}
	return nil
}

// getProjectQuota is QCMD(Q_GETQUOTA, PRJQUOTA) of quotactl(2).
const getProjectQuota = 0x800007<<8 | 2

// quota is struct if_dqblk.
type quota struct {
	_                              structs.HostLayout
	hardBytes, softBytes, bytes    uint64
	hardInodes, softInodes, inodes uint64
	bytesTime, inodesTime          uint64
	valid                          uint32
	_                              uint32
}

func (linux) quota(file *os.File, project uint32) (quota, error) {
	var u quota
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, file.Fd(), getProjectQuota, uintptr(project), uintptr(unsafe.Pointer(&u)), 0, 0)
	if errno != 0 {
		return u, &os.PathError{Op: "find the project quota of", Path: file.Name(), Err: errno}
	}
	return u, nil
}
