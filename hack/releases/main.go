// Command releases generates the table of internal/releases from the published API
// modules of every minor release of Kubernetes, which modules.txt pins, and from what
// their types do not tell, in facts.txt. It runs in the root of the module.
//
// It downloads nothing and changes nothing while the table has the digest of these
// inputs and of this program; -force generates it in any case.
package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"os"

	"svc.dev/svc/internal/releases"
)

const file = "internal/releases/zz_generated.table.txt"

//go:embed *.go *.txt
var inputs embed.FS

func main() {
	force := flag.Bool("force", false, "generate the table even if its inputs have not changed")
	flag.Parse()
	if err := generate(*force); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
		os.Exit(1)
	}
}

func generate(force bool) error {
	digest, err := digestOf(inputs)
	if err != nil {
		return err
	}
	present, err := os.ReadFile(file)
	if err == nil && releases.Digest(string(present)) == digest && !force {
		return nil
	}
	facts, err := readFacts()
	if err != nil {
		return err
	}
	modules, err := readModules()
	if err != nil {
		return err
	}
	all := map[releases.Release]*source{}
	for _, m := range modules {
		if all[m.release] == nil {
			all[m.release] = &source{release: m.release, packages: map[string]*pkg{}}
		}
		dir, err := m.download()
		if err != nil {
			return err
		}
		if err := all[m.release].read(m.path, dir); err != nil {
			return err
		}
	}
	kinds, types, err := merge(all, facts)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	releases.Write(&out, digest, kinds, types)
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// digestOf returns a hash of the names and contents of all files.
func digestOf(files fs.FS) (string, error) {
	h := sha256.New()
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
	return hex.EncodeToString(h.Sum(nil)), nil
}
