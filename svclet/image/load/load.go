package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/image/pause"
)

// Options configure an import.
type Options struct {
	// Endpoint is containerd's socket: a path, or a URL with the scheme unix.
	Endpoint string
	// StartedBy is the command that starts containerd, which the error names if none answers;
	// empty if it is not known.
	StartedBy string
	// Name replaces the name of the image in an archive with a single one.
	Name string
	// Progress, if set, is called with the number of bytes that have been read.
	Progress func(read int64)
	// Clock is the real one if it is nil.
	Clock clock.WithTicker
}

// Imported is an image that was imported and is known to CRI.
type Imported struct {
	// Name is the full reference, with a tag: docker.io/library/busybox:1.
	Name string
	// ID is the digest of its configuration: CRI's image ID.
	ID digest.Digest
	// Digest is the digest of its manifest or index.
	Digest digest.Digest
	// Size is the size of its manifest, configuration and (compressed) layers for this
	// machine's platform, in bytes.
	Size   int64
	layers []layer // from the lowest
}

// Import reads an archive to its end and returns when CRI knows its images. Of an
// image for several platforms it imports this machine's. An error is one line with
// the fault of the archive; images before the invalid one may have been
// imported.
func Import(ctx context.Context, opts Options, archive io.Reader) ([]Imported, error) {
	return importArchive(ctx, opts, archive, nil)
}

// ImportPause imports the built-in sandbox image and pins it, so that neither
// containerd nor the agent removes it. It is cheap if the image exists already. A
// failure to import an image that exists is logged only: an agent that starts on a full
// disk has to run, to evict the pods that fill it.
func ImportPause(ctx context.Context, endpoint string) error {
	var archive bytes.Buffer
	if err := pause.Image(&archive); err != nil {
		return fmt.Errorf("make the sandbox image: %w", err)
	}
	_, err := importArchive(ctx, Options{Endpoint: endpoint}, &archive, map[string]string{labelPinned: "pinned"})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("import the sandbox image %s: %w", pause.Name, err)
	exists, problem := hasPause(ctx, endpoint)
	if !exists {
		return errors.Join(err, problem)
	}
	klog.FromContext(ctx).Error(err, "Failed to check the sandbox image, using the one that exists", "image", pause.Name)
	return nil
}

// hasPause reports whether CRI knows the sandbox image. The image of a name never changes.
func hasPause(ctx context.Context, endpoint string) (bool, error) {
	conn, err := dial(ctx, endpoint, "")
	if err != nil {
		return false, nil // the import has failed for the same reason
	}
	defer conn.Close()
	response, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: pause.Name}})
	if err != nil {
		return false, fmt.Errorf("ask for the sandbox image: %w", plain(err))
	}
	return response.GetImage().GetId() != "", nil
}

func importArchive(ctx context.Context, opts Options, archive io.Reader, labels map[string]string) (imported []Imported, err error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	store, err := open(ctx, opts)
	if err != nil {
		return nil, err
	}
	// The lease protects content from garbage collection until an image refers to it.
	defer func() { err = errors.Join(err, store.close()) }()
	content, err := read(progressReader{archive, opts.Progress, new(int64)}, store.write)
	if err != nil {
		return nil, err
	}
	images, err := content.images(func(doc []byte) (ocispec.Descriptor, error) {
		return store.writeDocument(ocispec.MediaTypeImageManifest, doc)
	})
	if err != nil {
		return nil, content.explain(err)
	}
	if images, err = named(images, opts.Name); err != nil {
		return nil, err
	}
	want := ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	for _, candidates := range images {
		found, err := candidates.resolve(store, want)
		if err != nil {
			return imported, content.explain(err)
		}
		if err := store.unpack(found); err != nil {
			return imported, fmt.Errorf("%s: %w", found.Name, err)
		}
		if err := store.register(found, labels); err != nil {
			return imported, fmt.Errorf("%s: %w", found.Name, err)
		}
		imported = append(imported, found)
	}
	for _, image := range imported {
		if err := store.awaitCRI(image); err != nil {
			return imported, err
		}
	}
	return imported, nil
}

// candidates are the manifests and indexes that an archive has under one name.
type candidates struct {
	name    string // as in the archive, until named
	targets []ocispec.Descriptor
}

// named sets the full name of each image, or name if that is set.
func named(images []candidates, name string) ([]candidates, error) {
	if len(images) == 0 {
		return nil, errors.New("it holds no image; " + howToWrite)
	}
	if name != "" {
		if distinct := distinctTargets(images); distinct > 1 {
			return nil, fmt.Errorf("it holds %d images, which cannot all be named %s: leave --name out", distinct, name)
		}
		images = []candidates{{name, images[0].targets}}
	}
	for i := range images {
		full, err := reference.ParseDockerRef(images[i].name)
		switch {
		case images[i].name == "":
			return nil, errors.New("an image in it has no name: say which it is to have with --name")
		case err != nil:
			return nil, fmt.Errorf("%q is not a name of an image, as example.org/app:1: %w", images[i].name, err)
		}
		if _, tagged := full.(reference.Tagged); !tagged {
			return nil, fmt.Errorf("%q is not a name of an image: it has to end in a tag, as example.org/app:1", images[i].name)
		}
		images[i].name = full.String()
	}
	return images, nil
}

func distinctTargets(images []candidates) int {
	seen := map[digest.Digest]bool{}
	for _, image := range images {
		for _, target := range image.targets[:1] {
			seen[target.Digest] = true
		}
	}
	return len(seen)
}

// progressReader reports how much has been read.
type progressReader struct {
	io.Reader
	progress func(read int64)
	read     *int64
}

func (r progressReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	*r.read += int64(n)
	if r.progress != nil {
		r.progress(*r.read)
	}
	return n, err
}

func platformName(p ocispec.Platform) string {
	return cmp.Or(p.OS, "unknown") + "/" + cmp.Or(p.Architecture, "unknown")
}
