package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// images lists the images of an archive. If it is both an OCI layout and a docker
// archive, as newer versions of docker write it, the layout is used.
func (c *contents) images(writeManifest func(document []byte) (ocispec.Descriptor, error)) ([]candidates, error) {
	index, oci := c.documents[ocispec.ImageIndexFile]
	_, layout := c.documents[ocispec.ImageLayoutFile]
	list, docker := c.documents[dockerManifest]
	switch {
	case oci && layout:
		return ociImages(index)
	case docker:
		return c.dockerImages(list, writeManifest)
	}
	return nil, fmt.Errorf("it is not an archive of images: it has neither %s and %s (OCI image layout) nor %s (docker save); pack one of these at the top of it",
		ocispec.ImageLayoutFile, ocispec.ImageIndexFile, dockerManifest)
}

// annotationName is the annotation with an image's name in archives of containerd
// and docker.
const annotationName = "io.containerd.image.name"

func ociImages(document []byte) ([]candidates, error) {
	var index ocispec.Index
	if err := decode(ocispec.ImageIndexFile, document, &index); err != nil {
		return nil, err
	}
	var images []candidates
	for _, target := range index.Manifests {
		if err := target.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", ocispec.ImageIndexFile, target.Digest, err)
		}
		name := ociName(target.Annotations)
		at := slices.IndexFunc(images, func(i candidates) bool { return i.name == name })
		if at < 0 {
			at, images = len(images), append(images, candidates{name: name})
		}
		images[at].targets = append(images[at].targets, target)
	}
	return images, nil
}

// ociName returns the name of an image in an OCI layout. Some tools write only a
// tag into the annotation of the specification; that is not a name.
func ociName(annotations map[string]string) string {
	if name := annotations[annotationName]; name != "" {
		return name
	}
	if name := annotations[ocispec.AnnotationRefName]; strings.ContainsAny(name, "/:") {
		return name
	}
	return ""
}

// dockerImages creates manifests for a docker archive, which has none.
func (c *contents) dockerImages(document []byte, writeManifest func([]byte) (ocispec.Descriptor, error)) ([]candidates, error) {
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := decode(dockerManifest, document, &list); err != nil {
		return nil, err
	}
	var images []candidates
	for _, image := range list {
		config, err := c.find(image.Config)
		if err != nil {
			return nil, err
		}
		manifest := ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2},
			MediaType: ocispec.MediaTypeImageManifest,
			Config:    ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: config.digest, Size: config.size},
		}
		for _, name := range image.Layers {
			layer, err := c.find(name)
			if err != nil {
				return nil, err
			}
			mediaType := ocispec.MediaTypeImageLayer
			if compressed := compression(layer.magic); compressed != "" {
				mediaType += "+" + compressed
			}
			manifest.Layers = append(manifest.Layers, ocispec.Descriptor{MediaType: mediaType, Digest: layer.digest, Size: layer.size})
		}
		content, err := json.Marshal(manifest)
		if err != nil {
			return nil, fmt.Errorf("make a manifest: %w", err)
		}
		target, err := writeManifest(content)
		if err != nil {
			return nil, err
		}
		if len(image.RepoTags) == 0 {
			images = append(images, candidates{"", []ocispec.Descriptor{target}})
		}
		for _, name := range image.RepoTags {
			images = append(images, candidates{name, []ocispec.Descriptor{target}})
		}
	}
	return images, nil
}

// content is the content store.
type content interface {
	// document reads a manifest, index or configuration.
	document(ocispec.Descriptor) ([]byte, error)
	// size returns the size of a blob, and an error if it does not exist.
	size(digest.Digest) (int64, error)
	// refer adds garbage collection references from a blob to others.
	refer(from digest.Digest, to map[string]digest.Digest) error
}

// maxDepth is the maximum nesting of indexes.
const maxDepth = 4

// errPlatform means that an image is for other platforms than the wanted one.
var errPlatform = errors.New("it is for another platform")

// resolve finds the manifest of a platform among the candidates, checks that all
// of its content exists, and adds the garbage collection references.
func (c candidates) resolve(store content, want ocispec.Platform) (Imported, error) {
	var by passed
	for _, target := range c.targets {
		found := Imported{Name: c.name, Digest: target.Digest}
		err := found.descend(store, target, want, &by, 0)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, errPlatform) {
			return Imported{}, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	slices.Sort(by.platforms)
	return Imported{}, fmt.Errorf("%s: %w: for %s, and this machine is %s; pull it for that one before it is saved", c.name, errPlatform, strings.Join(slices.Compact(by.platforms), ", "), platformName(want))
}

// passed records what a search for the manifest of a platform has skipped.
type passed struct {
	platforms   []string
	descriptors int
}

// descend searches the manifest of a platform at a descriptor.
func (i *Imported) descend(store content, at ocispec.Descriptor, want ocispec.Platform, by *passed, depth int) error {
	// A few indexes can list each other thousands of times at each depth.
	by.descriptors++
	switch {
	case depth == maxDepth:
		return fmt.Errorf("its indexes are more than %d deep; %s", maxDepth, howToWrite)
	case by.descriptors > maxFiles:
		return fmt.Errorf("its indexes list more than %d manifests; %s", maxFiles, howToWrite)
	}
	if p := at.Platform; p != nil && !same(*p, want) {
		by.platforms = append(by.platforms, platformName(*p))
		return errPlatform
	}
	document, err := store.document(at)
	if err != nil {
		return err
	}
	var either struct {
		Manifests []ocispec.Descriptor `json:"manifests"`
		Config    *ocispec.Descriptor  `json:"config"`
		Layers    []ocispec.Descriptor `json:"layers"`
	}
	if err := decode(at.Digest.String(), document, &either); err != nil {
		return err
	}
	i.Size += int64(len(document))
	if either.Config != nil {
		return i.manifest(store, at, *either.Config, either.Layers, want, by)
	}
	for n, child := range either.Manifests {
		err := i.descend(store, child, want, by, depth+1)
		if errors.Is(err, errPlatform) {
			continue
		}
		if err != nil {
			return err
		}
		return store.refer(at.Digest, map[string]digest.Digest{fmt.Sprintf("m.%d", n): child.Digest})
	}
	if len(either.Manifests) == 0 {
		return fmt.Errorf("%s is neither a manifest nor an index; %s", at.Digest, howToWrite)
	}
	return errPlatform
}

// manifest checks a manifest and its content.
func (i *Imported) manifest(store content, at, config ocispec.Descriptor, layers []ocispec.Descriptor, want ocispec.Platform, by *passed) error {
	document, err := store.document(config)
	if err != nil {
		return err
	}
	var image ocispec.Image
	if err := decode("its configuration "+config.Digest.String(), document, &image); err != nil {
		return err
	}
	if image.Architecture != "" && !same(image.Platform, want) {
		by.platforms = append(by.platforms, platformName(image.Platform))
		return errPlatform
	}
	if len(image.RootFS.DiffIDs) != len(layers) {
		return fmt.Errorf("it has %d layers, and its configuration lists %d; %s", len(layers), len(image.RootFS.DiffIDs), howToWrite)
	}
	size := int64(len(document))
	refs := map[string]digest.Digest{"config": config.Digest}
	for n, of := range layers {
		has, err := store.size(of.Digest)
		if err != nil {
			return err
		}
		if has != of.Size {
			return fmt.Errorf("the layer %s has %d bytes, and the manifest says %d; %s", of.Digest, has, of.Size, howToWrite)
		}
		size += has
		i.layers = append(i.layers, layer{of, image.RootFS.DiffIDs[n]})
		refs[fmt.Sprintf("l.%d", n)] = of.Digest
	}
	i.ID, i.Size = config.Digest, i.Size+size
	return store.refer(at.Digest, refs)
}

// same reports whether an image for platform p runs on want. An empty operating
// system is Linux.
func same(p, want ocispec.Platform) bool {
	return (p.OS == "" || p.OS == want.OS) && p.Architecture == want.Architecture
}
