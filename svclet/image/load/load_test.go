package load

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"svc.dev/svc/svclet/image/pause"
)

// file is a file of an archive.
type file struct {
	name, content string
	link          string // of a symbolic link
}

func packed(t testing.TB, files ...file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func blobFile(content string) file {
	return file{name: "blobs/sha256/" + digest.FromString(content).Encoded(), content: content}
}

func descriptor(mediaType, content string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(content), Size: int64(len(content))}
}

const layout = `{"imageLayoutVersion":"1.0.0"}`

// image returns an image of one layer for a Linux platform.
func image(t testing.TB, arch string) (manifest ocispec.Descriptor, files []file) {
	t.Helper()
	layer := "the layer of " + arch
	config := asJSON(t, ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: arch}, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString(layer)}}})
	document := asJSON(t, ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    descriptor(ocispec.MediaTypeImageConfig, config),
		Layers:    []ocispec.Descriptor{descriptor(ocispec.MediaTypeImageLayer, layer)},
	})
	return descriptor(ocispec.MediaTypeImageManifest, document), []file{blobFile(layer), blobFile(config), blobFile(document)}
}

// ociLayout returns an archive of images with names.
func ociLayout(t testing.TB, files []file, names map[string]ocispec.Descriptor) []file {
	t.Helper()
	var index ocispec.Index
	for _, name := range slices.Sorted(maps.Keys(names)) {
		target := names[name]
		target.Annotations = map[string]string{ocispec.AnnotationRefName: name}
		index.Manifests = append(index.Manifests, target)
	}
	return append(files, file{name: "oci-layout", content: layout}, file{name: "index.json", content: asJSON(t, index)})
}

func other(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH == "s390x" {
		return "amd64"
	}
	return "s390x"
}

func TestAnImportHasTheResultOfAPull(t *testing.T) {
	ours, files := image(t, runtime.GOARCH)
	theirs, more := image(t, other(t))
	ours.Platform = &ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	theirs.Platform = &ocispec.Platform{OS: "linux", Architecture: other(t)}
	index := asJSON(t, ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{theirs, ours}})
	ours.Platform = nil
	config := files[1]

	dockerManifest := asJSON(t, []map[string]any{{"Config": "config.json", "RepoTags": []string{"busybox:1", "example.com/b:2"}, "Layers": []string{"a/layer.tar"}}})
	for _, tc := range []struct {
		name    string
		archive []byte
		opts    Options
		want    []string
	}{
		{"an OCI layout", packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": ours})...), Options{}, []string{"example.com/a:1"}},
		{"one in which the index comes first", packed(t, slices.Concat(ociLayout(t, nil, map[string]ocispec.Descriptor{"a/b:1": ours}), files)...), Options{}, []string{"docker.io/a/b:1"}},
		{"one that is compressed", zipped(t, packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": ours})...)), Options{}, []string{"example.com/a:1"}},
		{"one for several platforms", packed(t, ociLayout(t, slices.Concat(files, more, []file{blobFile(index)}), map[string]ocispec.Descriptor{"example.com/a:1": descriptor(ocispec.MediaTypeImageIndex, index)})...), Options{}, []string{"example.com/a:1"}},
		{"one without those that are not ours", packed(t, ociLayout(t, append(slices.Clone(files), blobFile(index)), map[string]ocispec.Descriptor{"example.com/a:1": descriptor(ocispec.MediaTypeImageIndex, index)})...), Options{}, []string{"example.com/a:1"}},
		{"one with a tag only, and a name for it", packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"latest": ours})...), Options{Name: "example.com/a:1"}, []string{"example.com/a:1"}},
		{"an archive of docker", packed(t, file{name: "config.json", content: config.content}, file{name: "b/layer.tar", content: files[0].content}, file{name: "a/layer.tar", link: "../b/layer.tar"}, file{name: "manifest.json", content: dockerManifest}),
			Options{}, []string{"docker.io/library/busybox:1", "example.com/b:2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, socket := startFake(t)
			tc.opts.Endpoint = socket
			var read int64
			tc.opts.Progress = func(n int64) { read = n }
			for range 2 { // the second import finds the image
				imported, err := Import(t.Context(), tc.opts, bytes.NewReader(tc.archive))
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, i := range imported {
					names = append(names, i.Name)
					if i.ID != digest.FromString(config.content) || i.Size <= int64(len(config.content)) {
						t.Errorf("imported %+v", i)
					}
					f.check(t, i)
				}
				if !slices.Equal(names, tc.want) {
					t.Errorf("imported %q, want %q", names, tc.want)
				}
			}
			if read == 0 {
				t.Error("no progress was reported")
			}
			if len(f.leases) > 0 || len(f.open) > 0 {
				t.Errorf("%d leases and %d writes are left", len(f.leases), len(f.open))
			}
			if f.unpacked != 1 {
				t.Errorf("the layer was unpacked %d times", f.unpacked)
			}
		})
	}
}

func TestAnImageOfCRIWithSeveralSnapshottersIsUnpackedByItsContainers(t *testing.T) {
	ours, files := image(t, runtime.GOARCH)
	for _, snapshotters := range [][]string{nil, {"overlayfs", "stargz"}} {
		f, socket := startFake(t)
		f.snapshotters = snapshotters
		imported, err := Import(t.Context(), Options{Endpoint: socket}, bytes.NewReader(packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": ours})...)))
		if err != nil || len(imported) != 1 || f.unpacked != 0 {
			t.Errorf("%v: imported %v, unpacked %d layers: %v", snapshotters, imported, f.unpacked, err)
		}
	}
}

func TestALayerThatIsNotWhatItsConfigurationSaysIsRefused(t *testing.T) {
	layer := "the layer"
	config := asJSON(t, ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString("another")}}})
	document := asJSON(t, ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, Config: descriptor(ocispec.MediaTypeImageConfig, config), Layers: []ocispec.Descriptor{descriptor(ocispec.MediaTypeImageLayer, layer)},
	})
	files := []file{blobFile(layer), blobFile(config), blobFile(document)}
	f, socket := startFake(t)
	_, err := Import(t.Context(), Options{Endpoint: socket}, bytes.NewReader(packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": descriptor(ocispec.MediaTypeImageManifest, document)})...)))
	if want := "and its configuration says " + digest.FromString("another").String(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if len(f.images) > 0 || len(f.snapshots) > 0 || len(f.leases) > 0 {
		t.Errorf("left are %v, %v and %v", f.images, f.snapshots, f.leases)
	}
}

// check checks that an image has CRI's names and labels, and that all of its
// content is referenced.
func (f *fake) check(t *testing.T, i Imported) {
	t.Helper()
	repository := i.Name[:strings.LastIndex(i.Name, ":")]
	for _, name := range []string{i.Name, i.ID.String(), repository + "@" + i.Digest.String()} {
		if image := f.images[name]; image.GetTarget().GetDigest() != i.Digest.String() || image.GetLabels()["io.cri-containerd.image"] != "managed" {
			t.Errorf("%s is %v", name, image)
		}
	}
	var reach func(digest.Digest) int
	reach = func(at digest.Digest) int {
		if _, ok := f.blobs[at]; !ok {
			t.Errorf("%s does not exist", at)
		}
		n := 1
		for key, to := range f.labels[at] {
			if key == "containerd.io/gc.ref.snapshot.overlayfs" {
				if layers := f.snapshots[to]; len(layers) != 1 || f.blobs[layers[0]] == nil {
					t.Errorf("the snapshot %s of %s has the layers %v", to, at, layers)
				}
				continue
			}
			if !strings.HasPrefix(key, "containerd.io/gc.ref.content.") {
				t.Errorf("%s has the label %s", at, key)
			}
			n += reach(digest.Digest(to))
		}
		return n
	}
	if f.labels[i.ID]["containerd.io/gc.ref.snapshot.overlayfs"] == "" {
		t.Error("nothing keeps the unpacked layers from being collected")
	}
	if n := reach(i.Digest); n < 3 { // manifest, configuration, layer
		t.Errorf("only %d blobs are kept from being collected", n)
	}
}

func TestInvalidArchivesAreExplainedInOneLine(t *testing.T) {
	ours, files := image(t, runtime.GOARCH)
	theirs, others := image(t, other(t))
	whole := packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": ours})...)
	for _, tc := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"nothing", nil, "it is empty: an archive of images was expected; write it again with docker save, or as an OCI image layout"},
		{"text", []byte(strings.Repeat("once upon a time ", 100)), "it is not a tar archive"},
		{"a short text", []byte("hello"), "it is not a tar archive"},
		{"one that is truncated", whole[:520], "it is truncated: write or copy it again"},
		{"one that is compressed and truncated", zipped(t, whole)[:200], "it is truncated"},
		{"one that is compressed and truncated in its first file", zipped(t, whole)[:30], "it is truncated"},
		{"one that is truncated between two files", whole[:1024], "it is truncated: write or copy it again, to its end (it is not an archive of images"},
		{"gzip that is none", []byte("\x1f\x8b\x08\x00nonsense"), "it"},
		{"a compression that is not known", []byte("\x28\xb5\x2f\xfd...."), "it is compressed with zstd: decompress it first"},
		{"some archive", packed(t, file{name: "README", content: "read me"}), "it is not an archive of images: it has neither oci-layout and index.json (OCI image layout) nor manifest.json (docker save)"},
		{"an index that is none", packed(t, file{name: "oci-layout", content: layout}, file{name: "index.json", content: "["}), "index.json is invalid"},
		{"no image at all", packed(t, file{name: "oci-layout", content: layout}, file{name: "index.json", content: "{}"}), "it holds no image"},
		{"a name that is only a tag", packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"latest": ours})...), "an image in it has no name: say which it is to have"},
		{"a name that is none", packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"Not/A/Name": ours})...), `"Not/A/Name" is not a name of an image`},
		{"a layer that is missing", packed(t, ociLayout(t, files[1:], map[string]ocispec.Descriptor{"example.com/a:1": ours})...), "is missing in it"},
		{"content that was changed", packed(t, ociLayout(t, append(slices.Clone(files[1:]), file{files[0].name, "something else", ""}), map[string]ocispec.Descriptor{"example.com/a:1": ours})...),
			"it is damaged: its digest is sha256:"},
		{"another platform", packed(t, ociLayout(t, others, map[string]ocispec.Descriptor{"example.com/a:1": theirs})...),
			fmt.Sprintf("example.com/a:1: it is for another platform: for linux/%s, and this machine is linux/%s", other(t), runtime.GOARCH)},
		{"a blob that is named otherwise", packed(t, file{name: "blobs/sha256/../../etc/passwd"}, file{name: "blobs/sha256/abc", content: "x"}), "blobs/sha256/abc is not named after a digest"},
		{"a docker archive without its layer", packed(t, file{name: "manifest.json", content: `[{"Config":"c","Layers":["l"]}]`}, file{name: "c", content: "{}"}), "l is missing in it"},
		{"links in a circle", packed(t, file{name: "manifest.json", content: `[{"Config":"a"}]`}, file{name: "a", link: "b"}, file{name: "b", link: "a"}), "is missing in it"},
		{"more files than an archive of images has", packed(t, make([]file, maxFiles+1)...), "it has more than 4096 files"},
		{"an index that is too large", packed(t, file{name: "index.json", content: strings.Repeat(" ", maxDocument+1)}), "index.json is larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, socket := startFake(t)
			imported, err := Import(t.Context(), Options{Endpoint: socket}, bytes.NewReader(tc.archive))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q in one line", err, tc.want)
			}
			if len(imported) > 0 || len(f.images) > 0 || len(f.leases) > 0 || len(f.open) > 0 {
				t.Errorf("imported %v; %d images, %d leases and %d writes are left", imported, len(f.images), len(f.leases), len(f.open))
			}
		})
	}
}

func TestTheSandboxImageIsPinned(t *testing.T) {
	f, socket := startFake(t)
	if err := ImportPause(t.Context(), "unix://"+socket); err != nil {
		t.Fatal(err)
	}
	if got := f.images[pause.Name].GetLabels()["io.cri-containerd.pinned"]; got != "pinned" {
		t.Errorf("its labels are %v", f.images[pause.Name].GetLabels())
	}
}

func TestASandboxImageThatExistsIsEnoughOnAFullDisk(t *testing.T) {
	f, socket := startFake(t)
	f.setFull(true)
	err := ImportPause(t.Context(), socket)
	if want := "import the sandbox image " + pause.Name + ": "; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "no space left on device") {
		t.Errorf("no image exists, and nothing can be written: %v, want %s...", err, want)
	}
	f.setFull(false)
	if err := ImportPause(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	f.setFull(true)
	if err := ImportPause(t.Context(), socket); err != nil {
		t.Errorf("it exists, and nothing can be written: %v", err)
	}
}

func TestAMissingContainerdIsExplained(t *testing.T) {
	socket := t.TempDir() + "/none"
	_, err := Import(t.Context(), Options{Endpoint: socket}, strings.NewReader(""))
	if want := "no containerd answers at unix://" + socket + ": start it, or name another endpoint"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTheCommandThatStartsTheNodesContainerdIsNamed(t *testing.T) {
	socket := t.TempDir() + "/none"
	archive := t.TempDir() + "/a.tar"
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no containerd answers at unix://" + socket + ": start it with 'svc up', or name another endpoint":             {"list"},
		archive + ": no containerd answers at unix://" + socket + ": start it with 'svc up', or name another endpoint": {"import", archive},
		"no containerd answers at unix://" + socket + "2: start it, or name another endpoint":                          {"list", "--container-runtime-endpoint=" + socket + "2"},
	} {
		cmd := NewCommand(pflag.NewFlagSet("", pflag.ContinueOnError), "svc up", func(*cobra.Command) (string, error) { return socket, nil })
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

func TestASocketOfRootIsExplained(t *testing.T) {
	denied := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	if got, want := remedy(denied, "svc up"), "it is root's, use sudo"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSizesAreReadable(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 20: "1 MiB", 5 << 29: "2.5 GiB"} {
		if got := humanSize(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}
