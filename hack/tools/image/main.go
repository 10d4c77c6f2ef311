// Command image makes the container image of svc, as an OCI archive and without a
// container engine, and the list of what is in its binaries. The same binaries give the
// same bytes.
//
//	image -name svc:dev -output DIR linux/amd64=FILE linux/arm64=FILE
//	image -push registry.example.com/svc:1.0 -output DIR
//
// The first form writes DIR/svc.tar, DIR/svc (the same as an OCI layout) and a
// DIR/svc-OS-ARCHITECTURE.cdx.json for each binary. The second form sends what the
// first has made to a registry, as the user whom the configuration of docker names.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	image := flags.String("name", "svc:dev", "name of the image in the archive")
	version := flags.String("version", "", "svc's own version")
	output := flags.String("output", "", "directory of the archive")
	to := flags.String("push", "", "name under which the image is sent to a registry")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *output == "" {
		return errors.New("-output: name a directory")
	}
	if *to != "" {
		return push(*to, *output)
	}
	var binaries []binary
	for _, arg := range flags.Args() {
		b, err := parseBinary(arg)
		if err != nil {
			return err
		}
		binaries = append(binaries, b)
	}
	if len(binaries) == 0 {
		return errors.New("name a binary, as linux/amd64=FILE")
	}
	digest, err := write(*image, *version, *output, binaries)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s@%s\n", filepath.Join(*output, "svc.tar"), *image, digest)
	return nil
}

// write writes the archive, the layout and the lists of modules.
func write(image, version, output string, binaries []binary) (v1.Hash, error) {
	ref, err := name.NewTag(image)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("-name: %w", err)
	}
	index, err := newIndex(version, binaries)
	if err != nil {
		return v1.Hash{}, err
	}
	directory := filepath.Join(output, "svc")
	if err := os.RemoveAll(directory); err != nil {
		return v1.Hash{}, err
	}
	if err := writeLayout(directory, ref, index); err != nil {
		return v1.Hash{}, err
	}
	if err := archive(directory, filepath.Join(output, "svc.tar")); err != nil {
		return v1.Hash{}, err
	}
	for _, b := range binaries {
		list, err := modules(b.file, version)
		if err != nil {
			return v1.Hash{}, err
		}
		file := filepath.Join(output, fmt.Sprintf("svc-%s-%s.cdx.json", b.platform.OS, b.platform.Architecture))
		if err := os.WriteFile(file, list, 0o644); err != nil {
			return v1.Hash{}, err
		}
	}
	return index.Digest()
}

// push sends the image of a layout to a registry.
func push(to, output string, options ...remote.Option) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	root, err := layout.ImageIndexFromPath(filepath.Join(output, "svc"))
	if err != nil {
		return fmt.Errorf("%w; run make image first", err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("%s has %d images, want one", output, len(manifest.Manifests))
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	options = append([]remote.Option{remote.WithAuthFromKeychain(authn.DefaultKeychain)}, options...)
	if err := remote.WriteIndex(ref, index, options...); err != nil {
		return fmt.Errorf("push %s: %w", to, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref.Context(), digest)
	return nil
}
