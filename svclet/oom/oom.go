// Package oom owns the reports of processes that the kernel kills because the machine has
// no memory left.
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

// Watch reads records of the kernel's log, one with each read, and calls killed with
// kubelet's message for each process that was killed because of the whole machine, not of
// the limit of a cgroup. It returns the error of a read.
func Watch(log io.Reader, killed func(message string)) error {
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
			killed(k.message)
			k = kill{}
		}
	}
}

// The kernel's messages about a process that it kills: the first, the one about a cgroup
// before and since Linux 5.0, and the last.
var (
	firstMessage  = "invoked oom-killer:"
	legacyMessage = regexp.MustCompile(`Task in .* killed as a result of limit of (.*)`)
	cgroupMessage = regexp.MustCompile(`oom-kill:.*,oom_memcg=(.*),task_memcg=.*,task=(.*),pid=(\d+),uid=`)
	lastMessage   = regexp.MustCompile(`Killed process (\d+) \((.+)\)`)
)

// kill is what has been read about a process that is killed.
type kill struct {
	begun bool
	// limited is whether the memory of a cgroup is used up, not that of the machine.
	limited bool
	message string
}

// read reads a message, and reports whether it completes a kill because of the machine.
func (k *kill) read(message string) bool {
	if strings.Contains(message, firstMessage) {
		*k = kill{begun: true}
		return false
	}
	if !k.begun {
		return false
	}
	name, pid := "", ""
	if found := legacyMessage.FindStringSubmatch(message); found != nil {
		k.limited = found[1] != "/"
		return false
	} else if found := cgroupMessage.FindStringSubmatch(message); found != nil {
		k.limited, name, pid = found[1] != "/", found[2], found[3]
	} else if found := lastMessage.FindStringSubmatch(message); found != nil {
		pid, name = found[1], found[2]
	} else {
		return false
	}
	k.begun = false
	k.message = fmt.Sprintf("System OOM encountered, victim process: %s, pid: %s", name, pid)
	return !k.limited
}
