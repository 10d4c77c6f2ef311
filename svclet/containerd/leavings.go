package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Leavings are the agent's directories that Reset cleans up.
type Leavings struct {
	// Dir is the agent's root directory; empty to keep its content.
	Dir string `json:"-"`
	// LogsDir is the directory of pod logs, and LinksDir that of the links to them.
	LogsDir  string `json:"logsDir"`
	LinksDir string `json:"linksDir"`
	// Endpoint is the CRI endpoint of the runtime of the agent's pods; empty if that is
	// the containerd of Config.
	Endpoint string `json:"endpoint,omitempty"`
	// Cgroup is the path of a cgroup of the agent's pods only; empty if there is none.
	Cgroup string `json:"cgroup,omitempty"`
}

// LeavingsFile is the name of the file in the root directory of an agent that has its
// Leavings.
const LeavingsFile = "reset.json"

// Record writes the leavings to a file in the agent's root directory, by which a reset finds
// them that does not have the agent's settings.
func (l Leavings) Record() error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = replaceFile(filepath.Join(l.Dir, LeavingsFile), append(content, '\n'))
	return err
}

// RecordedLeavings returns the leavings that the last agent of a root directory has recorded;
// nil if none has.
func RecordedLeavings(dir string) (*Leavings, error) {
	file := filepath.Join(dir, LeavingsFile)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &Leavings{Dir: dir}
	if err := json.Unmarshal(content, l); err != nil {
		return nil, fmt.Errorf("%s is damaged: start svclet again with its settings, stop it, and reset again: %w", file, err)
	}
	return l, nil
}
