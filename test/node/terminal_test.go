package node

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// terminal is the user's end of a pseudo terminal in which a command runs.
type terminal struct {
	file *os.File
	out  syncBuffer
}

// startInTerminal starts a command that has a terminal of a size as its
// standard streams.
func startInTerminal(cmd *exec.Cmd, rows, columns uint16) *terminal {
	GinkgoHelper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(file.Close)
	fd := int(file.Fd())
	Expect(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)).To(Succeed())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	Expect(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})).To(Succeed())
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	defer theirs.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() { _ = cmd.Process.Kill() })
	t := &terminal{file: file}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			_, _ = t.out.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	return t
}

// write types text.
func (t *terminal) write(text string) {
	GinkgoHelper()
	_, err := t.file.WriteString(text)
	Expect(err).NotTo(HaveOccurred())
}

// output is what has been shown so far.
func (t *terminal) output() string { return t.out.String() }

// syncBuffer collects the output of a process, for concurrent readers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
