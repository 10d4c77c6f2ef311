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
// sets, or else one that is built for the occasion into the temporary directory.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("SVC"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("svc-under-test-%d", os.Getuid()))
	build := exec.Command("go", "build", "-o", path, "svc.dev/svc/cmd/svc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building svc: %w\n%s", err, out)
	}
	return path, nil
})

// Tool is the path of a program that `make` builds into bin/ beside svc, and
// whether it is there.
func Tool(name string) (string, bool) {
	svc, err := Binary()
	if err != nil {
		return "", false
	}
	path := filepath.Join(filepath.Dir(svc), name)
	_, err = os.Stat(path)
	return path, err == nil
}
