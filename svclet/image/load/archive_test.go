package load

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// blobs is a content store in memory.
type blobs map[digest.Digest][]byte

func (b blobs) write(r io.Reader, size int64, want digest.Digest) (digest.Digest, error) {
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return "", err
	}
	got := digest.FromBytes(data)
	if want != "" && want != got {
		return "", errors.New("it is damaged")
	}
	b[got] = data
	return got, nil
}

func (b blobs) writeManifest(document []byte) (ocispec.Descriptor, error) {
	got, err := b.write(bytes.NewReader(document), int64(len(document)), "")
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: got, Size: int64(len(document))}, err
}

func (b blobs) document(of ocispec.Descriptor) ([]byte, error) {
	_, err := b.size(of.Digest)
	return b[of.Digest], err
}

func (b blobs) size(of digest.Digest) (int64, error) {
	data, there := b[of]
	if !there {
		return 0, errors.New("missing")
	}
	return int64(len(data)), nil
}

func (blobs) refer(digest.Digest, map[string]digest.Digest) error { return nil }

// load imports an archive without containerd.
func (b blobs) load(archive []byte) ([]Imported, error) {
	read, err := read(bytes.NewReader(archive), b.write)
	if err != nil {
		return nil, err
	}
	images, err := read.images(b.writeManifest)
	if err != nil {
		return nil, err
	}
	if images, err = named(images, ""); err != nil {
		return nil, err
	}
	var all []Imported
	for _, each := range images {
		found, err := each.resolve(b, ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH})
		if err != nil {
			return all, err
		}
		all = append(all, found)
	}
	return all, nil
}

func TestIndexesWithTooManyManifestsAreRefused(t *testing.T) {
	theirs, files := image(t, other(t))
	at := theirs
	for range maxDepth - 1 {
		var index ocispec.Index
		for range 200 {
			index.Manifests = append(index.Manifests, at)
		}
		document := asJSON(t, index)
		at = descriptor(ocispec.MediaTypeImageIndex, document)
		files = append(files, blobFile(document))
	}
	_, err := blobs{}.load(packed(t, ociLayout(t, files, map[string]ocispec.Descriptor{"example.com/a:1": at})...))
	if err == nil || !strings.Contains(err.Error(), "list more than 4096 manifests") {
		t.Errorf("eight million manifests: %v", err)
	}
}

func FuzzArchives(f *testing.F) {
	ours, files := image(f, runtime.GOARCH)
	whole := packed(f, ociLayout(f, files, map[string]ocispec.Descriptor{"example.com/a:1": ours})...)
	f.Add(whole)
	f.Add(zipped(f, whole[:2048]))
	f.Add(packed(f, file{name: "manifest.json", content: `[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`}, file{name: "c", content: `{"rootfs":{"diff_ids":["x"]}}`}, file{name: "l", link: "c"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		images, err := blobs{}.load(archive)
		if err == nil && len(images) == 0 {
			t.Error("nothing was found, and nothing is wrong")
		}
		for _, i := range images {
			if i.ID.Validate() != nil || i.Digest.Validate() != nil || i.Size < 0 || strings.Count(i.Name, ":") == 0 {
				t.Errorf("found %+v", i)
			}
		}
	})
}
