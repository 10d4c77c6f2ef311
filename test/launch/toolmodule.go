package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ToolModule returns the directory of a module that the module hack/tools/TOOL requires. It
// downloads it if it has to.
func ToolModule(ctx context.Context, tool, module string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	download := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "hack", "tools", tool), "mod", "download", module)
	download.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("downloading %s: %w: %s", module, err, out)
	}
	list := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "hack", "tools", tool), "list", "-m", "-f={{.Dir}}", module)
	list.Env = download.Env
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
