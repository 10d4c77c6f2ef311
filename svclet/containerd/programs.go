package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Programs are the paths of the programs that are needed to run containers.
type Programs struct {
	Containerd, Runc string
	// PluginDir is the directory of the CNI plugins.
	PluginDir string
	// IPTables is empty if there is none: pods then have no host ports, and reach only
	// the machine itself and each other.
	IPTables string
}

// Search configures where programs are searched.
type Search struct {
	// Dirs are the directories of $PATH, and those of programs for root only.
	Dirs []string
	// PluginDirs are further directories of CNI plugins.
	PluginDirs []string
}

// DefaultSearch searches $PATH and the directories of distributions and of the
// projects' own instructions.
func DefaultSearch() Search {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return Search{Dirs: dirs, PluginDirs: []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}}
}

// plugins are the required CNI plugins; portmap is needed for host ports.
var plugins = []string{"bridge", "host-local", "loopback"}

const portmap = "portmap"

// MissingError lists what a machine lacks to run containers.
type MissingError struct {
	// What are the missing programs, and Packages their packages in Debian and Ubuntu.
	What, Packages []string
}

// Error returns one line that says how to install what is missing.
func (e *MissingError) Error() string {
	verb := "is"
	if len(e.What) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s missing: apt-get install %s (on Debian and Ubuntu; other systems name the packages alike)",
		listed(e.What), verb, strings.Join(e.Packages, " "))
}

func listed(what []string) string {
	if len(what) < 2 {
		return strings.Join(what, "")
	}
	last := len(what) - 1
	return strings.Join(what[:last], ", ") + " and " + what[last]
}

// Find finds the programs. It returns a [*MissingError] if a required one does not
// exist.
func Find(search Search) (Programs, error) {
	found := Programs{
		Containerd: search.program("containerd"),
		Runc:       search.program("runc"),
		PluginDir:  search.pluginDir(),
		IPTables:   search.program("iptables"),
	}
	missing := &MissingError{}
	lacks := func(what, where, debian string) {
		if where == "" {
			missing.What = append(missing.What, what)
			missing.Packages = append(missing.Packages, debian)
		}
	}
	lacks("containerd", found.Containerd, "containerd")
	lacks("runc", found.Runc, "runc")
	lacks("the set of CNI plugins", found.PluginDir, "containernetworking-plugins")
	if len(missing.What) > 0 {
		return Programs{}, missing
	}
	return found, nil
}

func (s Search) program(name string) string {
	for _, dir := range s.Dirs {
		if path := filepath.Join(dir, name); filepath.IsAbs(path) && executable(path) {
			return path
		}
	}
	return ""
}

func (s Search) pluginDir() string {
	for _, dir := range slices.Concat(s.PluginDirs, s.Dirs) {
		if filepath.IsAbs(dir) && !slices.ContainsFunc(plugins, func(name string) bool { return !executable(filepath.Join(dir, name)) }) {
			return dir
		}
	}
	return ""
}

func executable(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.Mode().IsRegular() && stat.Mode()&0o111 != 0
}

// version is containerd's version.
type version struct {
	text         string // 1.6.20
	major, minor int
}

var versionText = regexp.MustCompile(`\bv?((\d+)\.(\d+)\.\d+\S*)`)

// askVersion runs `containerd --version`.
func askVersion(ctx context.Context, containerd string) (version, error) {
	out, err := exec.CommandContext(ctx, containerd, "--version").CombinedOutput()
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return version{}, fmt.Errorf("%s cannot be run: %w", containerd, err)
		}
		return version{}, fmt.Errorf("%s --version: %w: %s", containerd, err, firstLine(out))
	}
	return parseVersion(string(out))
}

func parseVersion(out string) (version, error) {
	found := versionText.FindStringSubmatch(out)
	if found == nil {
		return version{}, fmt.Errorf("containerd --version says %q: no version is in that", firstLine([]byte(out)))
	}
	major, err := strconv.Atoi(found[2])
	if err != nil {
		return version{}, fmt.Errorf("containerd's version %s: %w", found[1], err)
	}
	minor, err := strconv.Atoi(found[3])
	if err != nil {
		return version{}, fmt.Errorf("containerd's version %s: %w", found[1], err)
	}
	v := version{strings.TrimRight(found[1], "~"), major, minor}
	if v.major < 1 || v.major == 1 && v.minor < 6 {
		return version{}, fmt.Errorf("containerd is of version %s, and 1.6 is the first that will do: install a newer one", v.text)
	}
	return v, nil
}

func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
