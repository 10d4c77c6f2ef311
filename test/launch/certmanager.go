package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// templated are the lines of a definition that are of cert-manager's chart.
var templated = regexp.MustCompile(`(?m)^.*\{\{.*\n`)

// CertManagerDefinitions returns the custom resource definitions of the module that
// hack/peers.sh builds cert-manager from, without the labels that its chart adds.
func CertManagerDefinitions(ctx context.Context) ([]string, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	const module = "github.com/cert-manager/cert-manager"
	list := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "hack", "tools", "cert-manager"), "list", "-m", "-f={{.Dir}}", module)
	list.Env = append(os.Environ(), "GOFLAGS=")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "deploy", "crds", "crd-*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no definitions", module)
	}
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, string(templated.ReplaceAll(content, nil)))
	}
	return all, nil
}
