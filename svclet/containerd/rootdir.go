package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LockFile is the name of the file in the root directory of an agent that the agent locks.
const LockFile = "svclet.lock"

// rootEntries are the names of what an agent makes in its root directory.
var rootEntries = []string{
	LockFile, "allocated_pods_state", "checkpoints", "claims_state", "containerd", "cpu_manager_state", "device-plugins", "dns-port",
	"image_manager", "kernel-parameters", "local-volumes", "memory_manager_state", "pki", "plugins", "plugins_registry", "pod-resources", "pods", LeavingsFile,
}

// isRootEntry reports whether an agent makes a file or a directory of this name in its root
// directory. Before a file is replaced its content is in a file .NAME with digits.
func isRootEntry(name string) bool {
	temporary, hidden := strings.CutPrefix(name, ".")
	return slices.Contains(rootEntries, name) || hidden && slices.Contains(rootEntries, strings.TrimRight(temporary, "0123456789"))
}

// foreignEntries returns the names of what no agent has made in a directory: none if there is
// no such directory.
func foreignEntries(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if !isRootEntry(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// CheckRoot returns an error if a directory is not the root directory of an agent: none has
// locked it, and it has content, whose names may be those of an agent's by chance. It changes
// nothing.
func CheckRoot(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, LockFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s is not the root directory of a svclet: it has no %s, and has %s; nothing has been changed", dir, LockFile, entries[0].Name())
	}
	return err
}
