package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// LoopDevice makes a file of a size in bytes a loop device. The caller ends it with detach.
func LoopDevice(ctx context.Context, file string, size int64) (device string, detach func() error, err error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return "", nil, err
	}
	if err := os.Truncate(file, size); err != nil {
		return "", nil, err
	}
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("this machine has no loop devices: %w: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	return device, func() error {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			return fmt.Errorf("detaching %s: %w: %s", device, err, out)
		}
		return nil
	}, nil
}
