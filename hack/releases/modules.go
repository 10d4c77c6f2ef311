package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"svc.dev/svc/internal/releases"
)

// module is one module of one release, with the hash that go.sum would have for it.
type module struct {
	path, version, sum string
	release            releases.Release
}

// readModules reads modules.txt.
func readModules() ([]module, error) {
	content, err := inputs.ReadFile("modules.txt")
	if err != nil {
		return nil, err
	}
	var modules []module
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		var patch int
		m := module{}
		if len(words) == 3 {
			m = module{path: words[0], version: words[1], sum: words[2]}
		}
		if _, err := fmt.Sscanf(m.version, "v0.%d.%d", &m.release, &patch); err != nil {
			return nil, fmt.Errorf("modules.txt: %q is not a module, a version and a hash", line)
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// download returns the folder of the module in the module cache.
func (m module) download() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir = os.TempDir() // outside of this module, whose go.sum it would extend
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &got); err != nil || jsonErr != nil {
		return "", fmt.Errorf("download %s@%s: %w: %s", m.path, m.version, errors.Join(err, jsonErr), got.Error)
	}
	if got.Sum != m.sum {
		return "", fmt.Errorf("%s@%s has the hash %s, and modules.txt pins %s", m.path, m.version, got.Sum, m.sum)
	}
	return got.Dir, nil
}
