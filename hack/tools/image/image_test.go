package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// built writes an image of this test's own program, for two platforms.
func built(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output := t.TempDir()
	if err := run([]string{"-name", "registry.example.com/svc:1.2.3", "-version", "1.2.3", "-output", output, "linux/amd64=" + program, "linux/arm64=" + program}); err != nil {
		t.Fatal(err)
	}
	return output
}

func index(t *testing.T, output string) v1.ImageIndex {
	t.Helper()
	root, err := layout.ImageIndexFromPath(filepath.Join(output, "svc"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "registry.example.com/svc:1.2.3" {
		t.Errorf("the archive names the image %q", got)
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	first, second := built(t), built(t)
	for _, file := range []string{"svc.tar", "svc-linux-amd64.cdx.json", "svc-linux-arm64.cdx.json"} {
		a, err := os.ReadFile(filepath.Join(first, file))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs between two builds", file)
		}
	}
}

func TestImageIsWhatTheDockerfileDescribes(t *testing.T) {
	dockerfile, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	index := index(t, built(t))
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
		t.Errorf("platforms %s", got)
	}
	image, err := index.Image(manifest.Manifests[1].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.OS != "linux" {
		t.Errorf("the image of linux/arm64 says %s/%s", config.OS, config.Architecture)
	}
	for instruction, value := range map[string]any{"ENTRYPOINT": config.Config.Entrypoint, "CMD": config.Config.Cmd} {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		line := instruction + " " + strings.ReplaceAll(string(encoded), `","`, `", "`)
		if !strings.Contains(string(dockerfile), "\n"+line) {
			t.Errorf("the Dockerfile lacks %s", line)
		}
	}
	for instruction, value := range map[string]string{"USER": config.Config.User, "EXPOSE": "6443", "VOLUME": "/var/lib/svc"} {
		if !strings.Contains(string(dockerfile), "\n"+instruction+" "+value+"\n") {
			t.Errorf("the Dockerfile lacks %s %s", instruction, value)
		}
	}
	if _, ok := config.Config.ExposedPorts["6443/tcp"]; !ok {
		t.Error("port 6443 is not exposed")
	}
}

func TestFilesOfTheImage(t *testing.T) {
	index := index(t, built(t))
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*tar.Header{}
	var authorities []byte
	content := mutate.Extract(image)
	defer content.Close()
	r := tar.NewReader(content)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header
		if strings.HasSuffix(header.Name, "ca-certificates.crt") {
			if authorities, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		if !header.ModTime.Equal(epoch) {
			t.Errorf("%s has the time %s", header.Name, header.ModTime)
		}
	}
	if svc := files["svc"]; svc == nil || svc.Mode != 0o755 || svc.Uid != 0 {
		t.Errorf("/svc: %+v", svc)
	}
	data := files["var/lib/svc"]
	if data == nil {
		data = files["var/lib/svc/"]
	}
	if data == nil || data.Uid != user || data.Gid != user || data.Typeflag != tar.TypeDir {
		t.Errorf("/var/lib/svc: %+v", data)
	}
	count := 0
	for block, rest := pem.Decode(authorities); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Error(err)
		}
		count++
	}
	if count < 50 {
		t.Errorf("%d public authorities", count)
	}
}

func TestModulesAreThoseOfTheProgram(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(built(t), "svc-linux-amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list bill
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range list.Components {
		found[c.Name] = true
		if c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("component %+v", c)
		}
	}
	if !found["std"] || list.Components[0].Version != runtime.Version() || list.Metadata.Component.Version != "1.2.3" {
		t.Errorf("lacks the program's own modules: %v of %+v", found, list.Metadata)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	output := built(t)
	to := strings.TrimPrefix(server.URL, "http://") + "/svc:1.2.3"
	if err := run([]string{"-push", to, "-output", output}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := digest(t, pushed), digest(t, index(t, output)); got != want {
		t.Errorf("the registry has %s, want %s", got, want)
	}
}

func digest(t *testing.T, index v1.ImageIndex) v1.Hash {
	t.Helper()
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestMistakesInTheCommandLine(t *testing.T) {
	output := t.TempDir()
	for want, args := range map[string][]string{
		"-output: name a directory":           {"linux/amd64=x"},
		"name a binary":                       {"-output", output},
		`invalid binary "linux=x"`:            {"-output", output, "linux=x"},
		`-name: `:                             {"-name", "A B", "-output", output, "linux/amd64=x"},
		"no such file":                        {"-output", output, "linux/amd64=" + filepath.Join(output, "absent")},
		"no such file or directory; run make": {"-push", "example.com/svc", "-output", output},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
}
