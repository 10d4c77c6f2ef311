// Command releases generates the table of internal/releases from the published API
// modules of every minor release of Kubernetes, which modules.txt pins, and from what
// their types do not tell, in facts.txt. It runs in the root of the module.
//
// It downloads nothing and changes nothing while the table has the digest of these
// inputs and of this program; -force generates it in any case.
package main

import (
	"bytes"
	"embed"

	"svc.dev/svc/hack/pinned"
	"svc.dev/svc/internal/releases"
)

const file = "internal/releases/zz_generated.table.txt"

//go:embed *.go *.txt
var inputs embed.FS

func main() { pinned.Main(file, inputs, generate) }

// generate returns the table.
func generate(digest string) ([]byte, error) {
	facts, err := readFacts()
	if err != nil {
		return nil, err
	}
	modules, err := pinned.Modules(inputs)
	if err != nil {
		return nil, err
	}
	all := map[releases.Release]*source{}
	for _, m := range modules {
		if all[m.Release] == nil {
			all[m.Release] = &source{release: m.Release, packages: map[string]*pkg{}}
		}
		dir, err := m.Download("")
		if err != nil {
			return nil, err
		}
		if err := all[m.Release].read(m.Path, dir); err != nil {
			return nil, err
		}
	}
	kinds, types, err := merge(all, facts)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	releases.Write(&out, digest, kinds, types)
	return out.Bytes(), nil
}
