package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"svc.dev/svc/internal/footprint"
)

// stopTimeout is how long containerd may take to exit after SIGTERM.
const stopTimeout = 10 * time.Second

// process is a running containerd, a child process or not.
type process struct {
	pid int
	// file is a pidfd, see pidfd_open(2), because a PID may be reused.
	file *os.File
	// ended is closed when the process has exited.
	ended chan struct{}
	// watched is closed to stop the watch.
	watched chan struct{}
}

// watch watches a process. For a child process, wait reaps it.
func watch(pid int, wait func() error) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the process %d (Linux 5.10 is the first that can): %w", pid, err)
	}
	p := &process{pid: pid, file: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{}), watched: make(chan struct{})}
	conn, err := p.file.SyscallConn()
	if err != nil {
		p.file.Close()
		return nil, fmt.Errorf("watch the process %d: %w", pid, err)
	}
	go func() {
		defer close(p.watched)
		// A pidfd becomes readable when its process exits.
		err := conn.Read(func(fd uintptr) bool {
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return ready > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil {
			return // the watch was stopped
		}
		if wait != nil {
			_ = wait() // the reason of its exit is in its log
		}
		close(p.ended)
	}()
	return p, nil
}

// forget stops watching.
func (p *process) forget() {
	p.file.Close()
	<-p.watched
}

func (p *process) signal(s unix.Signal) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// stop terminates the process, gracefully if possible, and stops watching.
func (p *process) stop(ctx context.Context) error {
	defer p.forget()
	select {
	case <-p.ended: // and the watch may be stopped already
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := p.signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill containerd: %w", err)
	}
	<-p.ended
	return nil
}

// findProcess returns the process that listens on a socket, or nil.
func findProcess(socket string) (*process, error) {
	conn, err := net.Dial("unix", socket)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a running containerd: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("look for a running containerd: %w", err)
	}
	var peer *unix.Ucred
	var peerErr error
	if err := errors.Join(raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}), peerErr); err != nil {
		return nil, fmt.Errorf("look for who listens at %s: %w", socket, err)
	}
	if peer.Pid <= 0 {
		return nil, fmt.Errorf("who listens at %s is in another PID namespace: stop it", socket)
	}
	return watch(int(peer.Pid), nil)
}

// find returns c's running containerd, or nil. heard reports whether it can be
// reached: the socket file may have been removed, for example by a cleanup of
// /run.
func (c Config) find() (p *process, heard bool, err error) {
	if p, err = findProcess(c.socket()); p != nil || err != nil {
		return p, p != nil, err
	}
	p, err = c.findWithoutSocket()
	return p, false, err
}

// findWithoutSocket returns the process that was started as c's containerd, or nil. No
// other one can start while it runs, because it locks the database.
func (c Config) findWithoutSocket() (*process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !c.started(pid) {
			continue
		}
		p, err := watch(pid, nil)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil || c.started(pid) { // and it is still the same process
			return p, err
		}
		p.forget()
	}
	return nil, nil
}

// started reports whether a process was started by start, with any path to the
// same directory.
func (c Config) started(pid int) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	content, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil {
		return false // it has exited
	}
	args := strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
	if len(args) != 3 || filepath.Base(args[0]) != "containerd" || args[1] != configFlag || filepath.Base(args[2]) != filepath.Base(c.configFile()) {
		return false
	}
	// Another user can give a process any name.
	if owner, err := os.Stat(proc); err != nil || owner.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return false
	}
	theirs, err := os.Stat(filepath.Join(proc, "root", filepath.Dir(args[2])))
	if err != nil {
		return false
	}
	own, err := os.Stat(c.Dir)
	return err == nil && os.SameFile(own, theirs)
}

const configFlag = "--config"

// start starts containerd in a session of its own, so that signals of a terminal
// and the exit of the agent do not affect it.
func (s settings) start() (*process, error) {
	log, err := openLog(s.logFile())
	if err != nil {
		return nil, fmt.Errorf("open containerd's log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.Programs.Containerd, configFlag, s.configFile())
	cmd.Dir = "/"
	cmd.Env = environment(os.Environ(), s.Programs)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := footprint.StartProcess(cmd); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	p, err := watch(cmd.Process.Pid, cmd.Wait)
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return p, nil
}

// environment returns the agent's environment without systemd's variables for the
// agent itself, and with a PATH for the programs that containerd and its CNI
// plugins run.
func environment(own []string, programs Programs) []string {
	var env, path []string
	for _, program := range []string{programs.Containerd, programs.Runc, programs.IPTables} {
		if dir := filepath.Dir(program); program != "" && !slices.Contains(path, dir) {
			path = append(path, dir)
		}
	}
	for _, variable := range own {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "PATH":
			path = append(path, filepath.SplitList(value)...)
		case name == "NOTIFY_SOCKET" || name == "WATCHDOG_PID" || name == "WATCHDOG_USEC" || strings.HasPrefix(name, "LISTEN_"):
		default:
			env = append(env, variable)
		}
	}
	return append(env, "PATH="+strings.Join(path, string(filepath.ListSeparator)))
}
