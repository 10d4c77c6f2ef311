// Package pinned owns how tables are generated from modules of Kubernetes that a file
// modules.txt pins: the modules, and when a table has to be generated again.
package pinned

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"svc.dev/svc/internal/releases"
)

//go:embed *.go
var own embed.FS

// Main is the main function of a program that generates a table: its files are inputs, and
// generate returns the table with a digest of them. It changes nothing while file has this
// digest, unless -force is given, and ends the process with code 1 on an error.
func Main(file string, inputs fs.FS, generate func(digest string) ([]byte, error)) {
	force := flag.Bool("force", false, "generate the table even if its inputs have not changed")
	flag.Parse()
	if err := update(file, inputs, *force, generate); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
		os.Exit(1)
	}
}

func update(file string, inputs fs.FS, force bool, generate func(digest string) ([]byte, error)) error {
	digest, err := digestOf(inputs, own)
	if err != nil {
		return err
	}
	present, err := os.ReadFile(file)
	if err == nil && releases.Digest(string(present)) == digest && !force {
		return nil
	}
	table, err := generate(digest)
	if err != nil {
		return err
	}
	return os.WriteFile(file, table, 0o644)
}

// digestOf returns a hash of the names and contents of all files.
func digestOf(all ...fs.FS) (string, error) {
	h := sha256.New()
	for _, files := range all {
		names, err := fs.Glob(files, "*")
		if err != nil {
			return "", err
		}
		for _, name := range names {
			content, err := fs.ReadFile(files, name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s", name, len(content), content)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Module is a module of one release, with the hash that go.sum would have for it.
type Module struct {
	Path, Version, Sum string
	Release            releases.Release
}

// Modules reads modules.txt: in each line a module, a version and a hash. The version is
// that of the release (v1.28.0), or of a library of it (v0.28.0).
func Modules(inputs fs.FS) ([]Module, error) {
	content, err := fs.ReadFile(inputs, "modules.txt")
	if err != nil {
		return nil, err
	}
	var modules []Module
	for line := range strings.Lines(string(content)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) != 3 {
			return nil, fmt.Errorf("modules.txt: %q is not a module, a version and a hash", line)
		}
		r, err := releases.ParseRelease(strings.Replace(words[1], "v0.", "v1.", 1))
		if err != nil {
			return nil, fmt.Errorf("modules.txt: %w", err)
		}
		modules = append(modules, Module{Path: words[0], Version: words[1], Sum: words[2], Release: r})
	}
	return modules, nil
}

// Download returns the folder of the module in a module cache: the user's, if cache is
// empty.
func (m Module) Download(cache string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", m.Path+"@"+m.Version)
	cmd.Dir = os.TempDir() // outside of this module, whose go.sum it would extend
	if cache != "" {
		cmd.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw")
	}
	out, err := cmd.Output()
	var got struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &got); err != nil || jsonErr != nil {
		return "", fmt.Errorf("download %s@%s: %w: %s", m.Path, m.Version, errors.Join(err, jsonErr), got.Error)
	}
	if got.Sum != m.Sum {
		return "", fmt.Errorf("%s@%s has the hash %s, and modules.txt pins %s", m.Path, m.Version, got.Sum, m.Sum)
	}
	return got.Dir, nil
}
