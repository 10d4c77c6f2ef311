package credentials

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// filesLifetime is how long the node's files are cached.
const filesLifetime = 5 * time.Minute

// Files are the node's docker configurations: the first readable one of a list.
// They are cached for five minutes.
type Files struct {
	paths []string
	clock clock.PassiveClock

	mu      sync.Mutex
	keyring *Keyring
	until   time.Time
}

// NewFiles returns the docker configurations at these paths. A file named
// .dockercfg has the old format.
func NewFiles(paths []string, clock clock.PassiveClock) *Files {
	return &Files{paths: paths, clock: clock}
}

// DefaultPaths returns where kubelet searches the node's docker configuration, in
// order: config.json in the agent's directory, its working directory, the home
// directory and the root; then .dockercfg in these. An empty home is left out.
func DefaultPaths(rootDir, home string) []string {
	var paths []string
	for _, dir := range []string{rootDir, ".", filepath.Join(home, ".docker"), "/.docker"} {
		if dir != "" && (home != "" || dir != ".docker") {
			paths = append(paths, filepath.Join(dir, "config.json"))
		}
	}
	for _, dir := range []string{rootDir, ".", home, "/"} {
		if dir != "" {
			paths = append(paths, filepath.Join(dir, ".dockercfg"))
		}
	}
	return paths
}

// Lookup returns the logins for a repository.
func (f *Files) Lookup(_ context.Context, repository string) []Login {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); f.keyring == nil || !now.Before(f.until) {
		f.keyring, f.until = new(Keyring), now.Add(filesLifetime)
		f.keyring.Add(f.read())
	}
	return f.keyring.Lookup(repository)
}

func (f *Files) read() Config {
	for _, path := range f.paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var config Config
		if err == nil {
			parse := ParseConfigJSON
			if filepath.Base(path) == ".dockercfg" {
				parse = ParseConfig
			}
			config, err = parse(data)
		}
		if err != nil {
			klog.ErrorS(err, "Failed to read Docker configuration file, skipping it", "path", path)
			continue
		}
		return config
	}
	return nil
}
