package load

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Limits of what is read into memory, and of what is accepted as an image archive.
const (
	maxDocument = 4 << 20 // bytes of a manifest, index or configuration; registries accept no more
	maxFiles    = 4096    // in an archive
)

// howToWrite is the remedy in errors: how to create an archive that can be imported.
const howToWrite = "write it again with docker save, or as an OCI image layout"

// dockerManifest is the file that lists the images of a docker archive.
const dockerManifest = "manifest.json"

// blob is a file of an archive that has been written to containerd.
type blob struct {
	digest digest.Digest
	size   int64
	magic  []byte // its first bytes
}

// contents is the content of an archive.
type contents struct {
	documents map[string][]byte // the files that describe the others
	blobs     map[string]blob   // all others, by path
	links     map[string]string // from path to path
	// ended reports whether the archive has the marker of its end.
	ended bool
}

// writeBlob writes size bytes to containerd. If want is set, it is the required
// digest.
type writeBlob func(r io.Reader, size int64, want digest.Digest) (digest.Digest, error)

// read reads an archive to its end; its files may be in any order.
func read(r io.Reader, write writeBlob) (*contents, error) {
	r, err := decompress(r)
	if err != nil {
		return nil, err
	}
	c := &contents{documents: map[string][]byte{}, blobs: map[string]blob{}, links: map[string]string{}}
	_, compressed := r.(*gzip.Reader)
	tail := &zeroTail{Reader: r}
	files := tar.NewReader(tail)
	for n := 0; ; n++ {
		header, err := files.Next()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return nil, errors.New("it is empty: an archive of images was expected; " + howToWrite)
		case errors.Is(err, io.EOF):
			c.ended = tail.zeros >= endMarker
			return c, nil
		case errors.Is(err, io.ErrUnexpectedEOF) && n == 0 && (compressed || tail.read >= tarBlock):
			return nil, damaged("", err)
		case err != nil && n == 0:
			return nil, fmt.Errorf("it is not a tar archive (%w); %s", err, howToWrite)
		case err != nil:
			return nil, damaged("", err)
		case n == maxFiles:
			return nil, fmt.Errorf("it has more than %d files: it is not an archive of images; %s", maxFiles, howToWrite)
		}
		if err := c.add(header, files, write); err != nil {
			return nil, err
		}
	}
}

func (c *contents) add(header *tar.Header, content io.Reader, write writeBlob) error {
	// Names are keys here and never become paths on this machine.
	name := path.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeSymlink:
		c.links[name] = path.Join(path.Dir(name), header.Linkname)
		return nil
	case tar.TypeLink:
		c.links[name] = path.Clean(header.Linkname)
		return nil
	case tar.TypeReg:
	default:
		return nil
	}
	if name == ocispec.ImageLayoutFile || name == ocispec.ImageIndexFile || name == dockerManifest {
		document, err := io.ReadAll(io.LimitReader(content, maxDocument+1))
		if err != nil {
			return damaged(name, err)
		}
		if len(document) > maxDocument {
			return fmt.Errorf("%s is larger than %d bytes, which that of no image is; %s", name, maxDocument, howToWrite)
		}
		c.documents[name] = document
		return nil
	}
	var want digest.Digest
	if rest, ok := strings.CutPrefix(name, ocispec.ImageBlobsDir+"/"); ok {
		want = digest.Digest(strings.Replace(rest, "/", ":", 1))
		if err := want.Validate(); err != nil {
			return fmt.Errorf("%s is not named after a digest: %w; %s", name, err, howToWrite)
		}
	}
	source := bufio.NewReader(content)
	magic, err := source.Peek(int(min(header.Size, 4)))
	if err != nil {
		return damaged(name, err)
	}
	magic = bytes.Clone(magic)
	got, err := write(source, header.Size, want)
	if err != nil {
		return damaged(name, err)
	}
	c.blobs[name] = blob{got, header.Size, magic}
	return nil
}

// damaged describes an error of reading the file name in an archive.
func damaged(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it is truncated: write or copy it again, to its end (%w)", err)
	}
	if name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// explain adds to an error about what is missing in an archive that the archive is
// truncated, if it was cut off between two files, which tar's format allows.
func (c *contents) explain(err error) error {
	if err == nil || c.ended {
		return err
	}
	return fmt.Errorf("it is truncated: write or copy it again, to its end (%w)", err)
}

// Sizes of tar's format, in bytes: a block, and the zeros that end an archive.
const (
	tarBlock  = 512
	endMarker = 2 * tarBlock
)

// zeroTail counts what was read, and the zeros at its end.
type zeroTail struct {
	io.Reader
	read, zeros int64
}

func (z *zeroTail) Read(p []byte) (int, error) {
	n, err := z.Reader.Read(p)
	z.read += int64(n)
	tail := int64(n - len(bytes.TrimRight(p[:n], "\x00")))
	if tail == int64(n) {
		tail += z.zeros
	}
	z.zeros = tail
	return n, err
}

// find returns the blob at a path, following links.
func (c *contents) find(name string) (blob, error) {
	name = path.Clean(name)
	for range 8 {
		if b, ok := c.blobs[name]; ok {
			return b, nil
		}
		target, ok := c.links[name]
		if !ok {
			break
		}
		name = target
	}
	return blob{}, fmt.Errorf("%s is missing in it; %s", name, howToWrite)
}

// compressions are the compressions of archives and layers.
var compressions = []struct {
	name, magic string
}{
	{"gzip", "\x1f\x8b"},
	{"zstd", "\x28\xb5\x2f\xfd"},
	{"xz", "\xfd7zX"},
	{"bzip2", "BZh"},
}

// compression returns the name of the compression by the first bytes, or "".
func compression(magic []byte) string {
	for _, c := range compressions {
		if bytes.HasPrefix(magic, []byte(c.magic)) {
			return c.name
		}
	}
	return ""
}

func decompress(r io.Reader) (io.Reader, error) {
	source := bufio.NewReaderSize(r, 64<<10)
	magic, err := source.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch c := compression(magic); c {
	case "":
		return source, nil
	case "gzip":
		plain, err := gzip.NewReader(source)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, damaged("", err)
		}
		if err != nil {
			return nil, fmt.Errorf("it is damaged: write or copy it again (%w)", err)
		}
		return plain, nil
	default:
		return nil, fmt.Errorf("it is compressed with %s: decompress it first", c)
	}
}

// decode decodes a JSON document of an archive.
func decode(name string, document []byte, into any) error {
	if err := json.Unmarshal(document, into); err != nil {
		return fmt.Errorf("%s is invalid: %w; %s", name, err, howToWrite)
	}
	return nil
}
