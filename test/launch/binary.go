// Package launch starts the svc binary under test as child processes, and
// drives it with kubectl.
package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Binary is the path of the svc binary under test: $SVC, which `make test-e2e`
// sets, or else bin/svc, built now.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SVC"); path != "" {
		return filepath.Abs(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "svc")
	if out, err := exec.Command(filepath.Join(root, "hack", "build.sh"), path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building svc: %w\n%s", err, out)
	}
	return path, nil
})
