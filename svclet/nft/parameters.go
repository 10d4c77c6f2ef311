package nft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"svc.dev/svc/svclet/checkpoint"
)

const (
	// parametersDir is the kernel's directory of parameters.
	parametersDir = "/proc/sys"
	// bootID is the parameter that identifies the time since the machine was started.
	bootID = "kernel/random/boot_id"
	// parametersFile is the file of [Parameters] in an agent's root directory.
	parametersFile = "kernel-parameters"
)

// SetParameter sets a parameter of the kernel, which is named as its file below /proc/sys.
func SetParameter(name, value string) error { return write(parametersDir, name, value) }

func write(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600)
}

func read(dir, name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(content)), err
}

// Parameters sets parameters of the kernel, and keeps in a file what they were before the
// first time since the machine was started: the ID of the boot, and "NAME VALUE" in each line.
type Parameters struct {
	file, dir string
	mu        sync.Mutex
}

// NewParameters returns the parameters that the agent with a root directory sets.
func NewParameters(root string) *Parameters {
	return &Parameters{file: filepath.Join(root, parametersFile), dir: parametersDir}
}

// Set sets a parameter, which is named as its file below /proc/sys.
func (p *Parameters) Set(name, value string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := read(p.dir, name)
	if err != nil || now == value {
		return err
	}
	if err := p.keep(name, now); err != nil {
		return fmt.Errorf("keep what the kernel parameter %s is: %w", name, err)
	}
	return write(p.dir, name, value)
}

// kept returns the lines of the file, or that of the ID only if they are of another boot.
func (p *Parameters) kept() ([]string, error) {
	boot, err := read(p.dir, bootID)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(p.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if lines := strings.Split(strings.TrimSpace(string(content)), "\n"); lines[0] == boot {
		return lines, nil
	}
	return []string{boot}, nil
}

// keep adds the value of a parameter to the file, unless it has one.
func (p *Parameters) keep(name, value string) error {
	lines, err := p.kept()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(lines[1:], of(name)) {
		return nil
	}
	return p.replace(append(lines, name+" "+value))
}

// of returns a function that reports whether a line of the file is that of a parameter.
func of(name string) func(line string) bool {
	return func(line string) bool { return strings.HasPrefix(line, name+" ") }
}

// replace writes the lines of the file.
func (p *Parameters) replace(lines []string) error {
	return checkpoint.Replace(p.file, []byte(strings.Join(lines, "\n")+"\n"))
}

// Restore sets the parameters to what they were before, except those that the kernel does
// not have any more, and removes the file. It does nothing if none has been set since the
// machine was started. If a parameter cannot be set, the others are, and the file stays.
func (p *Parameters) Restore() error {
	lines, err := p.kept()
	if err != nil {
		return fmt.Errorf("read what kernel parameters were: %w", err)
	}
	var errs []error
	for _, line := range lines[1:] {
		errs = append(errs, p.restore(line))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(p.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RestoreOne sets one parameter to what it was before, as [Parameters.Restore] does, and removes it
// from the file: what another program sets afterwards stays.
func (p *Parameters) RestoreOne(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines, err := p.kept()
	if err != nil {
		return fmt.Errorf("read what the kernel parameter %s was: %w", name, err)
	}
	i := slices.IndexFunc(lines[1:], of(name)) + 1
	if i == 0 {
		return nil
	}
	if err := p.restore(lines[i]); err != nil {
		return err
	}
	return p.replace(slices.Delete(lines, i, i+1))
}

// restore sets the parameter of a line of the file, unless the kernel does not have it any more.
func (p *Parameters) restore(line string) error {
	name, value, _ := strings.Cut(line, " ")
	now, err := read(p.dir, name)
	if err == nil && now != value {
		err = write(p.dir, name, value)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore the kernel parameter %s: %w", name, err)
	}
	return nil
}
