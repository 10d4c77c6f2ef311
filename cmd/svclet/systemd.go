package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/join"
)

// systemd is systemd on this machine, and its unit of svclet.
type systemd struct {
	// runs reports whether systemd manages the machine's services.
	runs bool
	// unitFile is the file of the unit.
	unitFile string
}

// thisSystemd returns systemd on this machine (sd_booted(3)).
func thisSystemd() systemd {
	info, err := os.Lstat("/run/systemd/system")
	return systemd{runs: err == nil && info.IsDir(), unitFile: join.UnitFile}
}

// start writes the unit with a command line of svclet and starts it, now and at each boot.
func (s systemd) start(ctx context.Context, args []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := checkpoint.ReplaceMode(s.unitFile, []byte(join.Unit(program, args)), 0o644); err != nil {
		return err
	}
	if err := systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	return systemctl(ctx, "enable", "--now", filepath.Base(s.unitFile))
}

// arguments returns the command line of svclet in the unit; nil if there is no unit. It returns
// an error for a unit that svclet join has not written.
func (s systemd) arguments() (args []string, err error) {
	if !s.runs {
		return nil, nil
	}
	unit, err := os.ReadFile(s.unitFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		args, err = join.UnitArguments(string(unit))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.unitFile, err)
	}
	return args, nil
}

// remove stops the unit and removes it, if there is one.
func (s systemd) remove(ctx context.Context) error {
	if _, err := os.Stat(s.unitFile); !s.runs || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(systemctl(ctx, "disable", "--now", filepath.Base(s.unitFile)), os.Remove(s.unitFile), systemctl(ctx, "daemon-reload"))
}

func systemctl(ctx context.Context, args ...string) error {
	if output, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
