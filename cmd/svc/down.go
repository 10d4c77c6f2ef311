package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/progress"
)

// downPoll is how often svc down checks whether svc up has ended.
const downPoll = 50 * time.Millisecond

func newDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the svc up of a data directory and wait until it has ended",
		Long: `Stop the svc up of a data directory, as Ctrl-C does, and wait until it has ended.
Pods keep running, and the data is kept. It is no error if no svc up runs.`,
		Args: noArguments,
	}
	choose := namedDataDirFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		choice, err := choose(cmd)
		if err != nil {
			return err
		}
		dir := choice.Dir
		if err := dir.Access(); err != nil {
			return err
		}
		holder, held, err := dir.Holder()
		if err != nil {
			return err
		}
		if !held {
			fmt.Fprintf(cmd.OutOrStdout(), "no svc up runs on %s%s\n", choice, sudoHint(choice.Dir))
			return nil
		}
		if err := terminate(dir, holder); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: waiting until svc up (process %d) has ended its requests and closed %s\n", cmd.CommandPath(), holder.PID, choice)
		what := fmt.Sprintf("%s: still waiting for process %d to end", cmd.CommandPath(), holder.PID)
		err = progress.While(cmd.ErrOrStderr(), clock.RealClock{}, what, func() error { return awaitEnd(cmd.Context(), dir, holder) })
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "svc up has ended; what was written is kept in %s\n", dir)
		return nil
	}
	return cmd
}

// terminate asks the process that has the directory open to stop, if it is an svc up.
func terminate(dir datadir.Dir, holder datadir.Holder) error {
	process, err := os.FindProcess(holder.PID)
	if err != nil {
		return fmt.Errorf("process %d of %s: %w", holder.PID, dir, err)
	}
	defer process.Release() //nolint:errcheck // it frees memory only
	if line := commandLine(holder.PID); line != nil && !slices.Contains(line, "up") {
		return fmt.Errorf("%s is in use by process %d, which is not svc up: %s", dir, holder.PID, strings.Join(line, " "))
	}
	// From FindProcess on, the ID stands for the same process. It is the holder if the
	// holder has not changed since.
	if again, held, err := dir.Holder(); err != nil || !held || again.PID != holder.PID {
		return err // it has ended by itself
	}
	err = process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("process %d of %s belongs to another user: run the command as that user", holder.PID, dir)
	}
	return err
}

// commandLine returns the command line of a process, or nil if the system has no
// /proc or the process has ended.
func commandLine(pid int) []string {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(content) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(content, "\x00")), "\x00")
}

// awaitEnd waits until another process, or none, has the directory open.
func awaitEnd(ctx context.Context, dir datadir.Dir, holder datadir.Holder) error {
	tick := clock.RealClock{}.NewTicker(downPoll)
	defer tick.Stop()
	for {
		// An error is about a directory that a new process is just opening.
		if now, held, err := dir.Holder(); err == nil && (!held || now.PID != holder.PID) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("svc up (process %d) is stopping, but has not ended yet", holder.PID)
		case <-tick.C():
		}
	}
}
