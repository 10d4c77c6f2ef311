package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout bounds the time from the first process to readiness.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long a process may take to end after SIGTERM.
	stopTimeout = 90 * time.Second
	// pollInterval is the resolution of the times of start.
	pollInterval = 5 * time.Millisecond
)

// An instance is a system that runs on a data directory.
type instance struct {
	system   system
	dir      string
	commands []*command // in the order of their start
}

// command is a started process, in its own process group.
type command struct {
	name  string
	cmd   *exec.Cmd
	log   *os.File
	done  chan struct{} // closed when the process has ended
	aside bool
}

// start starts a system and waits until it is ready. It returns the time since the
// start of the first process. If the directory has data, the system uses them.
func start(ctx context.Context, s system, dir string) (*instance, time.Duration, error) {
	processes, err := s.Processes(dir)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	in := &instance{system: s, dir: dir}
	began := time.Now()
	for _, p := range processes {
		if err := in.run(ctx, p); err != nil {
			return nil, 0, errors.Join(err, in.stop())
		}
	}
	if err := in.poll(ctx, ready(s.URL())); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s is not ready after %s: %w", s.Name(), time.Since(began).Round(time.Millisecond), err), in.stop())
	}
	return in, time.Since(began), nil
}

// run prepares and starts a process, and waits until it accepts connections.
func (in *instance) run(ctx context.Context, p process) error {
	if p.prepare != nil {
		if err := in.poll(ctx, p.prepare); err != nil {
			return fmt.Errorf("before %s: %w", p.name, err)
		}
	}
	log, err := os.OpenFile(in.log(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c := &command{name: p.name, log: log, cmd: exec.Command(p.path, p.args...), done: make(chan struct{}), aside: p.aside}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", p.name, err), log.Close())
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // The log and the ProcessState have the result.
	}()
	in.commands = append(in.commands, c)
	if p.listens == "" {
		return nil
	}
	return in.poll(ctx, func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.listens)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (in *instance) log(process string) string {
	return filepath.Join(filepath.Dir(in.dir), filepath.Base(in.dir)+"-"+process+".log")
}

// poll polls until there is no error, a process ends, or the context does.
func (in *instance) poll(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, c := range in.commands {
			select {
			case <-c.done:
				return fmt.Errorf("%s ended: %s\n%s", c.name, c.cmd.ProcessState, tail(in.log(c.name)))
			default:
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// ready returns a check of /readyz. It is anonymous and does not verify the
// certificate: at a first start, credentials and certificate do not exist yet.
func ready(url string) func(context.Context) error {
	probe := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := probe.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s: %s", resp.Status, body)
		}
		probe.CloseIdleConnections()
		return nil
	}
}

// groups returns the process groups that are measured.
func (in *instance) groups() []int {
	var groups []int
	for _, c := range in.commands {
		if !c.aside {
			groups = append(groups, c.cmd.Process.Pid)
		}
	}
	return groups
}

// group returns the process group of a process, if there is one of the name.
func (in *instance) group(name string) []int {
	var groups []int
	for _, c := range in.commands {
		if c.name == name {
			groups = append(groups, c.cmd.Process.Pid)
		}
	}
	return groups
}

// stop stops the processes in the reverse order of their start.
func (in *instance) stop() error {
	var errs []error
	for len(in.commands) > 0 {
		last := len(in.commands) - 1
		c := in.commands[last]
		in.commands = in.commands[:last]
		if err := c.stop(); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// line returns the command line for the report, with DIR for the data directory.
func (c *command) line(dir string) string {
	words := append([]string{filepath.Base(c.cmd.Path)}, c.cmd.Args[1:]...)
	return strings.ReplaceAll(strings.Join(words, " "), dir, "DIR")
}

// stop sends SIGTERM to the process. When it has exited, or after stopTimeout, it
// kills the remaining processes of the group.
func (c *command) stop() error {
	defer c.log.Close()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	var late error
	select {
	case <-c.done:
	case <-time.After(stopTimeout):
		late = fmt.Errorf("still running %s after SIGTERM", stopTimeout)
	}
	if err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return errors.Join(late, err)
	}
	<-c.done
	return late
}

// tail returns the end of a log, for an error message.
func tail(file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], nil)
}
