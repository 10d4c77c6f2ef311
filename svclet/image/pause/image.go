package pause

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Version is the image's tag. Every change of the image's content needs another one.
const Version = "2"

// Name is the reference of the image.
const Name = "localhost/svc/pause:" + Version

// UID is the user ID and the group ID that the program runs as.
const UID = 65535

// Blob is a layer, configuration, manifest or index of the image.
type Blob struct {
	ocispec.Descriptor
	Content []byte
}

// Blobs returns the layers, configurations and manifests of the image for every
// platform, and then its index, which refers to the manifests. The content is
// reproducible: the same bytes on every call and every machine.
func Blobs() ([]Blob, error) {
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	var blobs []Blob
	for _, p := range programs() {
		of, err := p.blobs()
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, of...)
		manifest := of[len(of)-1].Descriptor
		manifest.Platform = &ocispec.Platform{OS: "linux", Architecture: p.arch}
		index.Manifests = append(index.Manifests, manifest)
	}
	last, err := document(ocispec.MediaTypeImageIndex, index)
	return append(blobs, last), err
}

// blobs returns the layer, the configuration and the manifest for one platform.
func (p program) blobs() ([]Blob, error) {
	content, err := archive([]entry{{"pause", 0o755, p.executable()}})
	if err != nil {
		return nil, err
	}
	layer := blob(ocispec.MediaTypeImageLayer, content)
	config, err := document(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: p.arch},
		// An ID without a user: the program needs no privileges.
		Config: ocispec.ImageConfig{User: fmt.Sprintf("%d:%d", UID, UID), Entrypoint: []string{"/pause"}, WorkingDir: "/"},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layer.Digest}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    config.Descriptor,
		Layers:    []ocispec.Descriptor{layer.Descriptor},
	})
	return []Blob{layer, config, manifest}, err
}

// Image writes the image as a tar archive of an OCI image layout, which
// `svclet image import` and `ctr images import` read.
func Image(w io.Writer) error {
	blobs, err := Blobs()
	if err != nil {
		return err
	}
	root := blobs[len(blobs)-1].Descriptor
	root.Annotations = map[string]string{
		"io.containerd.image.name": Name,
		ocispec.AnnotationRefName:  Version,
	}
	index, err := document(ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{root},
	})
	if err != nil {
		return err
	}
	layout, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return fmt.Errorf("encode %s: %w", ocispec.ImageLayoutFile, err)
	}
	entries := []entry{{ocispec.ImageLayoutFile, 0o644, layout}, {ocispec.ImageIndexFile, 0o644, index.Content}}
	for _, b := range blobs {
		entries = append(entries, entry{"blobs/sha256/" + b.Digest.Encoded(), 0o644, b.Content})
	}
	content, err := archive(entries)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// entry is a file in a tar archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// archive returns a reproducible tar archive of the entries: they belong to root
// and have the modification time 0.
func archive(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return out.Bytes(), nil
}

func document(mediaType string, value any) (Blob, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return Blob{}, fmt.Errorf("encode a %s: %w", mediaType, err)
	}
	return blob(mediaType, content), nil
}

func blob(mediaType string, content []byte) Blob {
	return Blob{Content: content, Descriptor: ocispec.Descriptor{
		MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content)),
	}}
}
