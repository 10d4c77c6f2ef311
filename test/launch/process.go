package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process is a running child process.
type Process struct {
	cmd    *exec.Cmd
	output output
	done   chan struct{}
	err    error
}

// Start runs a program. The caller ends it with Kill, or with Stop.
func Start(env []string, program string, args ...string) (*Process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	return StartCommand(cmd)
}

// StartCommand is Start of a command that is prepared but for its output.
func StartCommand(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Output is what the process has written so far, on both streams.
func (p *Process) Output() string { return p.output.String() }

// Pid is the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Wait waits for the end of the process and returns its exit code, -1 if a
// signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s still runs: %w", p.cmd, ctx.Err())
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		return 0, p.err
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// Stop asks the process to end (SIGTERM), and kills it if it has not ended
// after the grace period. It returns the exit code.
func (p *Process) Stop(grace time.Duration) (int, error) {
	_ = p.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return code, err
}

// Kill ends the process at once (SIGKILL) and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// FreePort returns a TCP port at which nothing listens. It stays free, also while what
// listens at it is down: no connection and no listener on port 0 gets a port of these, which
// are below those that systems give away, and outside of the range of node ports. Each
// process of tests takes its own ones, each once before the first one again.
func FreePort() (string, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range lastPort - firstPort {
		if ports.next == 0 {
			ports.next = firstPort + os.Getpid()%portBlocks*portsPerProcess
		}
		port := ports.next
		if ports.next++; ports.next == lastPort {
			ports.next = firstPort
		}
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			return strconv.Itoa(port), l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
	}
	return "", fmt.Errorf("all ports from %d to %d are in use", firstPort, lastPort-1)
}

// FreePorts returns n different ones.
func FreePorts(n int) ([]string, error) {
	var found []string
	for range n {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		found = append(found, port)
	}
	return found, nil
}

// The ports that FreePort returns, from firstPort to before lastPort: a process begins with
// one of the blocks.
const (
	firstPort, lastPort = 12000, 30000
	portsPerProcess     = 100
	portBlocks          = (lastPort - firstPort) / portsPerProcess
)

// ports is where FreePort goes on.
var ports struct {
	mu   sync.Mutex
	next int
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
