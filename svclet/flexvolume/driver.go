package flexvolume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// callTimeout bounds a run of a driver, which may wait for a device or a server.
	callTimeout = 2 * time.Minute
	// maxOutput bounds how much of a driver's output is in an error, in bytes.
	maxOutput = 1 << 10
)

// errNotSupported is the answer of a driver that leaves a command to the agent.
var errNotSupported = errors.New("the driver does not support the command")

// answer is what a driver writes to its standard output.
type answer struct {
	Status       string        `json:"status"`
	Message      string        `json:"message"`
	Device       string        `json:"device"`
	VolumeName   string        `json:"volumeName"`
	Attached     bool          `json:"attached"`
	Capabilities *capabilities `json:"capabilities"`
}

// capabilities are what the command init answers.
type capabilities struct {
	// Attach makes the agent attach and mount a device before the volume.
	Attach bool `json:"attach"`
	// SELinuxRelabel reports whether the runtime may relabel the volume.
	SELinuxRelabel bool `json:"selinuxRelabel"`
	// SupportsMetrics reports whether the volume is a file system that can be measured.
	SupportsMetrics bool `json:"supportsMetrics"`
	// FSGroup makes the agent give the volume to the pod's fsGroup.
	FSGroup bool `json:"fsGroup"`
}

// UnmarshalJSON decodes capabilities over kubelet's defaults.
func (c *capabilities) UnmarshalJSON(data []byte) error {
	type plain capabilities
	*c = defaultCapabilities()
	return json.Unmarshal(data, (*plain)(c))
}

func defaultCapabilities() capabilities {
	return capabilities{Attach: true, SELinuxRelabel: true, FSGroup: true}
}

// driver is a program in the directory of drivers. Its file may be replaced at any time;
// it is initialized again afterwards.
type driver struct {
	name, program string
	capabilities
}

// cached is an initialized driver, with the file that it was.
type cached struct {
	driver
	file os.FileInfo
}

// driver returns the driver of a name (vendor/driver), initialized.
func (m *Manager) driver(ctx context.Context, name string) (driver, error) {
	program, err := m.program(name)
	if err != nil {
		return driver{}, err
	}
	file, err := os.Stat(program)
	if err != nil {
		return driver{}, fmt.Errorf("no volume plugin matched name: %s: %w", name, err)
	}
	m.mu.Lock()
	known, found := m.drivers[name]
	m.mu.Unlock()
	if found && os.SameFile(known.file, file) && known.file.ModTime().Equal(file.ModTime()) && known.file.Size() == file.Size() {
		return known.driver, nil
	}
	d := driver{name: name, program: program, capabilities: defaultCapabilities()}
	a, err := d.call(ctx, "init")
	if err != nil {
		return driver{}, fmt.Errorf("initializing the FlexVolume driver %s: %w", name, err)
	}
	if a.Capabilities != nil {
		d.capabilities = *a.Capabilities
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[name] = cached{d, file}
	return d, nil
}

// program returns the path of a driver's program: DIR/vendor~driver/driver.
func (m *Manager) program(name string) (string, error) {
	vendor, base, qualified := strings.Cut(name, "/")
	if !qualified {
		base = vendor
	}
	if base == "" || vendor == "" || strings.ContainsAny(base, "/\x00") || strings.HasPrefix(vendor, ".") || strings.HasPrefix(base, ".") {
		return "", fmt.Errorf("invalid name %q of a FlexVolume driver: must be vendor/driver", name)
	}
	return filepath.Join(m.o.Dir, escape(name), base), nil
}

// call runs a command of the driver. The error is errNotSupported if the driver leaves
// the command to the agent.
func (d *driver) call(ctx context.Context, command string, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	process := exec.CommandContext(ctx, d.program, append([]string{command}, args...)...)
	// Processes that the driver leaves running must not keep its output open.
	process.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	failed := process.Run()
	if errors.Is(failed, exec.ErrWaitDelay) {
		failed = nil
	}
	if ctx.Err() != nil {
		failed = ctx.Err()
	}
	var a answer
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		if failed == nil {
			failed = fmt.Errorf("the answer is not JSON: %w", err)
		}
		return a, fmt.Errorf("%s command failed: %w: %s", command, failed, end(stdout.String()+stderr.String()))
	}
	switch {
	case a.Status == "Not supported":
		return a, errNotSupported
	case a.Status != "Success":
		return a, fmt.Errorf("%s command failed, status: %s, reason: %s", command, a.Status, a.Message)
	case failed != nil:
		return a, fmt.Errorf("%s command failed: %w: %s", command, failed, end(stderr.String()))
	}
	return a, nil
}

// end returns the end of a driver's output, where programs usually say why they fail.
func end(output string) string {
	output = strings.TrimSpace(output)
	if len(output) <= maxOutput {
		return output
	}
	return "..." + output[len(output)-maxOutput:]
}

// escape makes a directory's name of a qualified name (vendor/driver).
func escape(name string) string { return strings.ReplaceAll(name, "/", "~") }
