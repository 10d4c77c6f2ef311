package launch

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is an image of one layer, made without a registry.
type Image struct {
	// Name is its full name, with a tag.
	Name string
	// Files are by their absolute paths.
	Files map[string]ImageFile
	// Config is how a container of it is started.
	Config ocispec.ImageConfig
}

// ImageFile is a file of an image.
type ImageFile struct {
	Content []byte
	// Link, if set, is the target of a symbolic link.
	Link string
	// Mode is that of a file or, with its type bit, of a directory. Zero is 0755.
	Mode fs.FileMode
}

// WriteFile writes the image as a tar archive with an OCI layout.
func (i Image) WriteFile(file string) error {
	content, err := i.archive()
	if err != nil {
		return fmt.Errorf("pack the image %s: %w", i.Name, err)
	}
	return os.WriteFile(file, content, 0o600)
}

func (i Image) archive() ([]byte, error) {
	layer, err := pack(i.Files)
	if err != nil {
		return nil, err
	}
	blobs := map[string]ImageFile{}
	add := func(mediaType string, content []byte) ocispec.Descriptor {
		sum := digest.FromBytes(content)
		blobs["/"+ocispec.ImageBlobsDir+"/sha256/"+sum.Encoded()] = ImageFile{Content: content}
		return ocispec.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(content))}
	}
	document := func(mediaType string, value any) (ocispec.Descriptor, error) {
		content, err := json.Marshal(value)
		return add(mediaType, content), err
	}
	layers := []ocispec.Descriptor{add(ocispec.MediaTypeImageLayer, layer)}
	config, err := document(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   i.Config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layers[0].Digest}},
	})
	if err != nil {
		return nil, err
	}
	version := specs.Versioned{SchemaVersion: 2}
	manifest, err := document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: version, MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: layers,
	})
	if err != nil {
		return nil, err
	}
	manifest.Annotations = map[string]string{ocispec.AnnotationRefName: i.Name}
	index, err := json.Marshal(ocispec.Index{Versioned: version, Manifests: []ocispec.Descriptor{manifest}})
	if err != nil {
		return nil, err
	}
	blobs["/"+ocispec.ImageIndexFile] = ImageFile{Content: index}
	blobs["/"+ocispec.ImageLayoutFile] = ImageFile{Content: []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	return pack(blobs)
}

// pack is a tar archive of files.
func pack(files map[string]ImageFile) ([]byte, error) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names) // directories come before what is in them
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		file := files[name]
		header := &tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(file.Content)), ModTime: time.Unix(0, 0)}
		if file.Mode != 0 {
			header.Mode = int64(file.Mode.Perm())
			if file.Mode&fs.ModeSticky != 0 {
				header.Mode |= 0o1000
			}
			if file.Mode&fs.ModeSetuid != 0 {
				header.Mode |= 0o4000
			}
		}
		switch {
		case file.Link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.Link
		case file.Mode.IsDir():
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// Busybox is an image of this machine's busybox, with a link for each of its
// commands.
func Busybox(name string) (Image, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return Image{}, fmt.Errorf("busybox is not installed: apt-get install busybox-static (%w)", err)
	}
	linked, err := elf.Open(program)
	if err != nil {
		return Image{}, fmt.Errorf("%s: %w", program, err)
	}
	defer linked.Close()
	if slices.ContainsFunc(linked.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return Image{}, fmt.Errorf("%s needs libraries: apt-get install busybox-static", program)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return Image{}, err
	}
	commands, err := exec.Command(program, "--list").Output()
	if err != nil {
		return Image{}, fmt.Errorf("%s --list: %w", program, err)
	}
	files := map[string]ImageFile{
		"/bin":         {Mode: fs.ModeDir | 0o755},
		"/bin/busybox": {Content: content},
		"/etc":         {Mode: fs.ModeDir | 0o755},
		"/etc/passwd":  {Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), Mode: 0o644},
		"/etc/group":   {Content: []byte("root:x:0:\nnogroup:x:65534:\n"), Mode: 0o644},
		"/root":        {Mode: fs.ModeDir | 0o700},
		"/tmp":         {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"/usr":         {Mode: fs.ModeDir | 0o755},
		"/usr/bin":     {Link: "../bin"},
	}
	for _, command := range strings.Fields(string(commands)) {
		if at := path.Join("/bin", command); at != "/bin/busybox" {
			files[at] = ImageFile{Link: "busybox"}
		}
	}
	return Image{Name: name, Files: files, Config: ocispec.ImageConfig{
		Cmd: []string{"sh"}, Env: []string{"PATH=/bin:/usr/bin"},
	}}, nil
}

// Program is an image of one Go program, which is built now from the package
// at pkg.
func Program(name, pkg string) (Image, error) {
	dir, err := os.MkdirTemp("", "svc")
	if err != nil {
		return Image{}, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return Image{}, fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return programFile(name, binary, "/"+path.Base(pkg))
}

// PeerImage is an image that runs a program that hack/peers.sh has built.
func PeerImage(name, program string) (Image, error) {
	file, err := Peer(program)
	if err != nil {
		return Image{}, err
	}
	return programFile(name, file, "/"+program)
}

// programFile is an image that runs a static program, at a path.
func programFile(name, file, at string) (Image, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Image{}, err
	}
	return Image{Name: name, Files: map[string]ImageFile{
		at:     {Content: content},
		"/tmp": {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}, Config: ocispec.ImageConfig{Entrypoint: []string{at}, WorkingDir: "/"}}, nil
}
