package containerd

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// withDirectories adds the pods to uids that have a directory in the root directory of the agent:
// the runtime does not know those that it has removed, or all if it could not be started.
func withDirectories(dir string, uids map[string]bool) (map[string]bool, error) {
	all := map[string]bool{}
	maps.Copy(all, uids)
	if dir == "" {
		return all, nil
	}
	entries, err := os.ReadDir(filepath.Join(dir, "pods"))
	for _, entry := range entries {
		all[entry.Name()] = true
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return all, err
}

// removeLogs removes the logs of pods, each of which has a directory
// <namespace>_<name>_<uid>, and the links to them.
func removeLogs(agent Leavings, uids map[string]bool) error {
	ofPod := func(dir string) bool {
		at := strings.LastIndexByte(dir, '_')
		return at >= 0 && uids[dir[at+1:]]
	}
	return errors.Join(
		removeEntries(agent.LogsDir, ofPod),
		removeEntries(agent.LinksDir, func(name string) bool {
			log, err := os.Readlink(filepath.Join(agent.LinksDir, name)) // <pod>/<container>/0.log
			pod := filepath.Dir(filepath.Dir(log))
			return err == nil && filepath.Dir(pod) == filepath.Clean(agent.LogsDir) && ofPod(filepath.Base(pod))
		}))
}

// removeEntries removes the entries of a directory, which may not exist, that are gone.
func removeEntries(dir string, gone func(name string) bool) error {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if gone(entry.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}
