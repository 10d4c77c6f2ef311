package nft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	// parametersDir is the kernel's directory of parameters.
	parametersDir = "/proc/sys"
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
// first time: "NAME VALUE" in each line.
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

// keep adds the value of a parameter to the file, unless it has one.
func (p *Parameters) keep(name, value string) error {
	content, err := os.ReadFile(p.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if known, _, _ := strings.Cut(line, " "); known == name {
			return nil
		}
	}
	return os.WriteFile(p.file, fmt.Appendf(content, "%s %s\n", name, value), 0o600)
}

// Restore sets the parameters to what they were before, except those that the kernel does
// not have any more, and removes the file. It does nothing if none has been set.
func (p *Parameters) Restore() error {
	content, err := os.ReadFile(p.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what kernel parameters were: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		now, err := read(p.dir, name)
		if err == nil && now != value {
			err = write(p.dir, name, value)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restore the kernel parameter %s: %w", name, err)
		}
	}
	return os.Remove(p.file)
}
