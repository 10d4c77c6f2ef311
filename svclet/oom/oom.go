// Package oom owns the reports of processes that the kernel kills for lack of memory, of the
// machine or of a cgroup, and their counts by container.
package oom

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// Open opens the kernel's log behind its last message. Closing the file ends a read.
func Open() (*os.File, error) {
	file, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// maxRecord is more than the size of the longest record of the kernel's log, in bytes.
const maxRecord = 16 << 10

// Kill is a process that the kernel has killed for lack of memory.
type Kill struct {
	// Cgroup is the path of the process's cgroup below the mount point of the hierarchy;
	// empty if the kernel has not logged it, as kernels before 5.0 do not for Machine.
	Cgroup string
	// Machine is whether the memory of the machine is used up, not that of a cgroup.
	Machine bool
	// Message is kubelet's message about a kill because of the machine.
	Message string
}

// Watch reads records of the kernel's log, one with each read, and calls killed for each
// process that was killed. It returns the error of a read.
func Watch(log io.Reader, killed func(Kill)) error {
	var k kill
	buffer := make([]byte, maxRecord)
	for {
		n, err := log.Read(buffer)
		if errors.Is(err, syscall.EPIPE) {
			k = kill{} // messages were overwritten before they were read
			continue
		}
		if err != nil {
			return err
		}
		// "PRIORITY,SEQUENCE,TIME,FLAGS;MESSAGE", and lines with properties
		record, _, _ := strings.Cut(string(buffer[:n]), "\n")
		if _, message, ok := strings.Cut(record, ";"); ok && k.read(message) {
			killed(k.Kill)
			k = kill{}
		}
	}
}

// The kernel's messages about a process that it kills: the first, the one about a cgroup
// before and since Linux 5.0, and the last.
var (
	firstMessage  = "invoked oom-killer:"
	legacyMessage = regexp.MustCompile(`Task in (.*) killed as a result of limit of (.*)`)
	cgroupMessage = regexp.MustCompile(`oom-kill:.*,(?:global_oom|oom_memcg=(.*)),task_memcg=(.*),task=(.*),pid=(\d+),uid=`)
	lastMessage   = regexp.MustCompile(`Killed process (\d+) \((.+)\)`)
)

// kill is what has been read about a process that is killed.
type kill struct {
	begun bool
	Kill
}

// read reads a message, and reports whether it completes a kill.
func (k *kill) read(message string) bool {
	if strings.Contains(message, firstMessage) {
		*k = kill{begun: true, Kill: Kill{Machine: true}}
		return false
	}
	if !k.begun {
		return false
	}
	name, pid := "", ""
	if found := legacyMessage.FindStringSubmatch(message); found != nil {
		k.Cgroup, k.Machine = found[1], found[2] == "/"
		return false
	} else if found := cgroupMessage.FindStringSubmatch(message); found != nil {
		k.Machine, k.Cgroup = found[1] == "" || found[1] == "/", found[2]
		name, pid = found[3], found[4]
	} else if found := lastMessage.FindStringSubmatch(message); found != nil {
		pid, name = found[1], found[2]
	} else {
		return false
	}
	k.begun = false
	k.Message = fmt.Sprintf("System OOM encountered, victim process: %s, pid: %s", name, pid)
	return true
}
