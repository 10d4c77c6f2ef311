package load

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/image/pause"
)

// node is a container runtime whose images are found by ID and by tag.
type node struct {
	runtimeapi.UnimplementedImageServiceServer
	runtimeapi.UnimplementedRuntimeServiceServer
	images     []*runtimeapi.Image
	containers []*runtimeapi.Container
}

func (n *node) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: n.images}, nil
}

func (n *node) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	for _, image := range n.images {
		for _, name := range append([]string{image.Id}, image.RepoTags...) {
			if name == request.Image.Image {
				return &runtimeapi.ImageStatusResponse{Image: image}, nil
			}
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

func (n *node) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	if strings.HasPrefix(request.Image.Image, "example.com/") {
		return nil, status.Error(codes.Unknown, "no such host")
	}
	const id = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	n.images = append(n.images, &runtimeapi.Image{Id: id, RepoTags: []string{request.Image.Image}, Size: 2048})
	return &runtimeapi.PullImageResponse{ImageRef: id}, nil
}

func (n *node) RemoveImage(_ context.Context, request *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	for i, image := range n.images {
		if image.Id == request.Image.Image {
			n.images = append(n.images[:i:i], n.images[i+1:]...)
			break
		}
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (n *node) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: n.containers}, nil
}

// serveNode serves the runtime, and returns what runs a command on it.
func serveNode(t *testing.T, n *node) func(args ...string) (out string, err error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterImageServiceServer(server, n)
	runtimeapi.RegisterRuntimeServiceServer(server, n)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before Serve
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return func(args ...string) (string, error) {
		cmd := NewCommand(pflag.NewFlagSet("", pflag.ContinueOnError), "svc up", func(*cobra.Command) (string, error) { return socket, nil })
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
}

func TestImagesAreListedPulledAndRemoved(t *testing.T) {
	const (
		id         = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
		pinned     = "sha256:3333333333333333333333333333333333333333333333333333333333333333"
		unreported = "sha256:4444444444444444444444444444444444444444444444444444444444444444"
	)
	image := serveNode(t, &node{
		images: []*runtimeapi.Image{
			{Id: id, RepoTags: []string{"docker.io/library/web:1", "docker.io/library/web:latest"}, Size: 3 << 20},
			{Id: pinned, RepoTags: []string{"svc.dev/pause:1"}, Size: 700, Pinned: true},
			{Id: unreported, RepoTags: []string{pause.Name}, Size: 700},
		},
		containers: []*runtimeapi.Container{{
			ImageRef: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
			Labels: map[string]string{"io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": "web-0"},
		}},
	})
	const all = "IMAGE                          ID             SIZE\n" +
		"docker.io/library/web:1        111111111111   3 MiB\n" +
		"docker.io/library/web:latest   111111111111   3 MiB\n"
	const sandbox = "localhost/svc/pause:2          444444444444   700 B\n" +
		"svc.dev/pause:1                333333333333   700 B\n"
	for _, step := range []struct {
		args []string
		want string
		err  string
	}{
		{args: []string{"list"}, want: all + sandbox},
		{args: []string{"pull", "busybox"}, want: "docker.io/library/busybox:latest  sha256:2222222222222222222222222222222222222222222222222222222222222222  2 KiB\n"},
		{args: []string{"rm", "docker.io/library/busybox:latest"}, want: "docker.io/library/busybox:latest  removed\n"},
		{args: []string{"list"}, want: all + sandbox},
		{args: []string{"rm", "docker.io/library/web:1"}, err: "docker.io/library/web:1: the container c of the pod ns/web-0 uses it: delete the pod first"},
		{args: []string{"rm", pinned}, err: pinned + ": the node needs it: it is pinned"},
		{args: []string{"rm", pause.Name}, err: pause.Name + ": the node needs it: it is pinned"},
		{args: []string{"rm", "other"}, err: "other: there is no such image; the command list prints those that exist"},
		{args: []string{"rm"}, err: "name the images to remove, as docker.io/library/busybox:1"},
		{args: []string{"pull", "Not/A/Name"}, err: "Not/A/Name: it is not the name of an image, as docker.io/library/busybox:1: invalid reference format: repository name (A/Name) must be lowercase"},
		{args: []string{"pull", "example.com/a:1"}, err: "example.com/a:1: no such host"},
		{
			args: []string{"pull", "example.com/a:1", "busybox", "Not/A/Name"}, want: "docker.io/library/busybox:latest  sha256:2222222222222222222222222222222222222222222222222222222222222222  2 KiB\n",
			err: "example.com/a:1: no such host\nNot/A/Name: it is not the name of an image, as docker.io/library/busybox:1: invalid reference format: repository name (A/Name) must be lowercase",
		},
	} {
		out, err := image(step.args...)
		if out != step.want || (err == nil) != (step.err == "") || err != nil && err.Error() != step.err {
			t.Errorf("%v: printed\n%s%v, want\n%s%s", step.args, out, err, step.want, step.err)
		}
	}
}

func TestErrorsOfRegistriesSayWhatToDo(t *testing.T) {
	const file = "/etc/containerd/certs.d/registry.example.com:5000/hosts.toml"
	for text, want := range map[string]string{
		"pulling from host registry.example.com:5000 failed with status code [manifests 1]: 401 Unauthorized":                            "imagePullSecrets",
		`failed to do request: Head "https://registry.example.com:5000/v2/": tls: failed to verify certificate: x509: unknown authority`: "certificate authority in " + file,
		`failed to do request: Head "https://registry.example.com:5000/v2/": http: server gave HTTP response to HTTPS client`:            "http:// in " + file,
		`failed to copy: httpReadSeeker: failed open: unexpected EOF`:                                                                    "is truncated: pull the image again",
		`failed to resolve reference "registry.example.com:5000/web:2": registry.example.com:5000/web:2: not found`:                      "",
	} {
		got := explain(errors.New(text), "registry.example.com:5000").Error()
		if !strings.HasPrefix(got, text) || !strings.Contains(got, want) || (got == text) != (want == "") {
			t.Errorf("%s", got)
		}
	}
}
