package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// templated are the lines of a definition that are of cert-manager's chart.
var templated = regexp.MustCompile(`(?m)^.*\{\{.*\n`)

// CertManagerDefinitions returns the custom resource definitions of the module that
// hack/peers.sh builds cert-manager from, without the labels that its chart adds.
func CertManagerDefinitions(ctx context.Context) ([]string, error) {
	const module = "github.com/cert-manager/cert-manager"
	dir, err := ToolModule(ctx, "cert-manager", module)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "deploy", "crds", "crd-*.yaml"))
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
