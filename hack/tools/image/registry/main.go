// Command registry serves images for tests of what pulls them.
//
//	registry -image team/app:1=ARCHIVE [-certificate FILE -key FILE] [-password PASSWORD] [-truncate]
//
// Each archive is a tar file of an OCI image layout. With a certificate it serves TLS, and with a
// password only the user "user". With -truncate it sends the first half of layers only. It prints
// where it listens.
package main

import (
	"archive/tar"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	images := map[string]string{}
	flags.Func("image", "an image, as team/app:1=ARCHIVE", func(text string) error {
		image, archive, found := strings.Cut(text, "=")
		if !found {
			return errors.New("must be as team/app:1=ARCHIVE")
		}
		images[image] = archive
		return nil
	})
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	certificate := flags.String("certificate", "", "file of the certificate for TLS")
	key := flags.String("key", "", "file of the certificate's key")
	password := flags.String("password", "", "password of the user \"user\", without whom nothing is served")
	half := flags.Bool("truncate", false, "send the first half of layers only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	for image, archive := range images {
		if err := store(handler, image, archive); err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
	if *password != "" {
		handler = restrict(handler, *password)
	}
	if *half {
		handler = truncate(handler)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("serving at", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	if *certificate != "" {
		return server.ServeTLS(listener, *certificate, *key)
	}
	return server.Serve(listener)
}

// store gives a registry the image of an archive.
func store(handler http.Handler, image, archive string) error {
	dir, err := os.MkdirTemp("", "registry")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := extract(archive, dir); err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("it has %d images: must be one", len(manifest.Manifests))
	}
	content, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // it ends by Close
	defer server.Close()
	reference, err := name.ParseReference(listener.Addr().String()+"/"+image, name.Insecure)
	if err != nil {
		return err
	}
	return remote.Write(reference, content)
}

// extract writes the files of a tar archive.
func extract(archive, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o700); err != nil {
			return err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, content, 0o600); err != nil {
			return err
		}
	}
}

// restrict serves only the user "user" with a password, as registries do that have no server
// of tokens.
func restrict(handler http.Handler, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		if user != "user" || subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintln(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// truncate sends the first half of layers, and closes their connections.
func truncate(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range") // which asks for the rest
		handler.ServeHTTP(&truncated{ResponseWriter: w, left: math.MaxInt64}, r)
	})
}

// smallest is the size of the smallest content, in bytes, that is truncated: layers are larger, and what
// describes the image is smaller.
const smallest = 64 << 10

// truncated is a response that ends when nothing is left of the first half of what its header announces.
type truncated struct {
	http.ResponseWriter
	left int64
}

func (t *truncated) WriteHeader(status int) {
	if size, err := strconv.ParseInt(t.Header().Get("Content-Length"), 10, 64); err == nil && size >= smallest {
		t.left = size / 2
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *truncated) Write(content []byte) (int, error) {
	content = content[:min(int64(len(content)), t.left)]
	t.left -= int64(len(content))
	n, err := t.ResponseWriter.Write(content)
	if err == nil && t.left == 0 {
		err = io.ErrShortWrite
	}
	return n, err
}
