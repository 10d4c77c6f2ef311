package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and the group that the image runs as. It has no name there.
const user = 65532

// epoch is the time of all files and of the image: a build has none of its own, so
// that the same input gives the same bytes.
var epoch = time.Unix(0, 0).UTC()

// binary is a program for a platform.
type binary struct {
	platform v1.Platform
	file     string
}

// parseBinary parses OS/ARCHITECTURE=FILE.
func parseBinary(arg string) (binary, error) {
	platform, file, ok := strings.Cut(arg, "=")
	system, architecture, found := strings.Cut(platform, "/")
	if !ok || !found || system == "" || architecture == "" || file == "" {
		return binary{}, fmt.Errorf("invalid binary %q: must be OS/ARCHITECTURE=FILE", arg)
	}
	return binary{v1.Platform{OS: system, Architecture: architecture}, file}, nil
}

// newIndex returns the image for all platforms.
func newIndex(version string, binaries []binary) (v1.ImageIndex, error) {
	base, err := baseLayer()
	if err != nil {
		return nil, err
	}
	var images []mutate.IndexAddendum
	for _, b := range binaries {
		image, err := newImage(version, base, b)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", b.file, err)
		}
		images = append(images, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &b.platform}})
	}
	return mutate.IndexMediaType(mutate.AppendManifests(empty.Index, images...), types.OCIImageIndex), nil
}

// newImage returns the image for one platform: what the Dockerfile describes.
func newImage(version string, base v1.Layer, b binary) (v1.Image, error) {
	program, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	top, err := layer(file{name: "svc", mode: 0o755, content: program})
	if err != nil {
		return nil, err
	}
	config := v1.Config{
		User:         fmt.Sprintf("%d:%d", user, user),
		ExposedPorts: map[string]struct{}{"6443/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/svc": {}},
		WorkingDir:   "/",
		Entrypoint:   []string{"/svc"},
		Cmd:          []string{"up", "--data-dir=/var/lib/svc", "--bind-address=0.0.0.0"},
		Labels:       map[string]string{"org.opencontainers.image.title": "svc"},
	}
	if version != "" {
		config.Labels["org.opencontainers.image.version"] = version
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), base, top)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, withConfig(image, b.platform, config))
}

// withConfig returns the configuration of an image, with its layers.
func withConfig(image v1.Image, platform v1.Platform, config v1.Config) *v1.ConfigFile {
	present, err := image.ConfigFile()
	if err != nil {
		present = &v1.ConfigFile{}
	}
	changed := present.DeepCopy()
	changed.OS, changed.Architecture = platform.OS, platform.Architecture
	changed.Created = v1.Time{Time: epoch}
	changed.Config = config
	for i := range changed.History {
		changed.History[i] = v1.History{Created: v1.Time{Time: epoch}}
	}
	return changed
}

// baseLayer is the same for all platforms: the public certificate authorities, which
// are Mozilla's as the module golang.org/x/crypto/x509roots/fallback has them, and the
// directory of the data.
func baseLayer() (v1.Layer, error) {
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file of certificates cannot say for which certificates it is trusted
		}
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return layer(
		file{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities.Bytes()},
		file{name: "var/lib/svc/", mode: 0o700, owner: user},
	)
}

// file is a file of a layer; a directory, if the name ends with a slash.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// layer returns a compressed layer with the files and the directories above them.
func layer(files ...file) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, f := range files {
		for i, c := range f.name {
			if directory := f.name[:i+1]; c == '/' && directory != f.name && !made[directory] {
				made[directory] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory, Mode: 0o755, ModTime: epoch}); err != nil {
					return nil, err
				}
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, Size: int64(len(f.content)), ModTime: epoch}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(out.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
