package pause

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestTheProgramIsAStaticExecutable(t *testing.T) {
	for _, p := range programs() {
		t.Run(p.arch, func(t *testing.T) {
			content := p.executable()
			file, err := elf.NewFile(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if file.Type != elf.ET_EXEC || file.Machine != p.machine || file.Class != elf.ELFCLASS64 || file.ByteOrder.String() != "LittleEndian" {
				t.Errorf("the header is %+v", file.FileHeader)
			}
			if len(file.Progs) != 2 {
				t.Fatalf("there are %d segments", len(file.Progs))
			}
			load, stack := file.Progs[0], file.Progs[1]
			if load.Type != elf.PT_LOAD || load.Flags != elf.PF_R|elf.PF_X || load.Filesz != uint64(len(content)) {
				t.Errorf("what is loaded is %+v", load.ProgHeader)
			}
			if stack.Type != elf.PT_GNU_STACK || stack.Flags&elf.PF_X != 0 {
				t.Errorf("the stack is %+v", stack.ProgHeader)
			}
			if load.Vaddr%load.Align != load.Off%load.Align {
				t.Error("the segment cannot be mapped: its address and offset disagree about its alignment")
			}
			code := content[file.Entry-load.Vaddr:]
			if string(code) != p.code {
				t.Errorf("the program begins at %#x, which is not its first instruction", file.Entry)
			}
			if len(content) > 512 {
				t.Errorf("the program has %d bytes", len(content))
			}
		})
	}
}

// Nodes keep an image that they have by its name, so a change of the content needs
// another version.
func TestTheImageOfAVersionNeverChanges(t *testing.T) {
	blobs, err := Blobs()
	if err != nil {
		t.Fatal(err)
	}
	const want = "sha256:8d038f284d7bc2e023b1d7dbfbf2f54c8ac1d36ffdc989a85004ccd20f088774"
	if got := blobs[len(blobs)-1].Digest; Version != "2" || got != want {
		t.Errorf("version %s has the digest %s", Version, got)
	}
}

func TestTheArchiveIsAnOCIImageLayout(t *testing.T) {
	var archive bytes.Buffer
	if err := Image(&archive); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(&archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(files[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var layout ocispec.ImageLayout
	read(ocispec.ImageLayoutFile, &layout)
	var top, index ocispec.Index
	read(ocispec.ImageIndexFile, &top)
	if layout.Version != ocispec.ImageLayoutVersion || top.Manifests[0].Annotations["io.containerd.image.name"] != Name {
		t.Errorf("the layout is %+v, the index %+v", layout, top)
	}
	read("blobs/sha256/"+top.Manifests[0].Digest.Encoded(), &index)
	for _, m := range index.Manifests {
		var manifest ocispec.Manifest
		read("blobs/sha256/"+m.Digest.Encoded(), &manifest)
		var config ocispec.Image
		read("blobs/sha256/"+manifest.Config.Digest.Encoded(), &config)
		if config.Architecture != m.Platform.Architecture || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
			t.Errorf("the configuration is %+v, of the manifest %+v", config, manifest)
		}
	}
	if len(index.Manifests) != len(programs()) {
		t.Errorf("there are %d platforms", len(index.Manifests))
	}
}
