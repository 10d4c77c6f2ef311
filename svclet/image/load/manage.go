package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/progress"
	pulls "svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/pause"
)

func newList(runtime *runtimeFlag) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images of this machine's node",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withCRI(cmd, runtime, func(ctx context.Context, cri *criClient) error {
				response, err := cri.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
				if err != nil {
					return fmt.Errorf("list the images: %w", plain(err))
				}
				return printImages(cmd.OutOrStdout(), response.GetImages())
			})
		},
	}
}

func newPull(runtime *runtimeFlag) *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Long: `Pull images from their registries, several at once and without credentials, so that
pods of this machine start without waiting for them. It prints the name, the ID and
the size of each image. An image that cannot be pulled does not keep it from pulling
the others.`,
		Args: namedImages("pull"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return withCRI(cmd, runtime, func(ctx context.Context, cri *criClient) error {
				var pulled []string
				err := progress.While(cmd.ErrOrStderr(), clock.RealClock{}, cmd.CommandPath()+": still pulling "+strings.Join(names, ", "), func() (err error) {
					pulled, err = cri.pullAll(ctx, names)
					return err
				})
				fmt.Fprint(cmd.OutOrStdout(), strings.Join(pulled, ""))
				return err
			})
		},
	}
}

func newRemove(runtime *runtimeFlag) *cobra.Command {
	return &cobra.Command{
		Use:     "rm IMAGE...",
		Aliases: []string{"remove"},
		Short:   "Remove images of this machine's node",
		Long: `Remove images of this machine's node, by name or ID, with all names that they
have. An image that a running container uses, or that the node itself needs, is not
removed.`,
		Args: namedImages("remove"),
		RunE: func(cmd *cobra.Command, names []string) error {
			return withCRI(cmd, runtime, func(ctx context.Context, cri *criClient) error {
				var errs []error
				for _, name := range names {
					removed, err := cri.remove(ctx, name)
					if err != nil {
						errs = append(errs, fmt.Errorf("%s: %w", name, err))
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s  removed\n", strings.Join(imageNames(removed), ", "))
				}
				return errors.Join(errs...)
			})
		},
	}
}

func namedImages(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || slices.Contains(args, "") {
			return fmt.Errorf("name the images to %s, as docker.io/library/busybox:1", verb)
		}
		return nil
	}
}

// noArguments rejects arguments to a command that takes flags only. [cobra.NoArgs] would call them
// unknown commands.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are taken", args[0])
	}
	return nil
}

// criClient is a connection to CRI.
type criClient struct {
	images     runtimeapi.ImageServiceClient
	containers runtimeapi.RuntimeServiceClient
}

// withCRI connects to the runtime of a command's flags while do runs.
func withCRI(cmd *cobra.Command, runtime *runtimeFlag, do func(context.Context, *criClient) error) error {
	endpoint, startedBy, err := runtime.of(cmd)
	if err != nil {
		return err
	}
	conn, err := dial(cmd.Context(), endpoint, startedBy)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(cmd.Context(), &criClient{runtimeapi.NewImageServiceClient(conn), runtimeapi.NewRuntimeServiceClient(conn)})
}

// find returns an image by its name or ID, or nil.
func (c *criClient) find(ctx context.Context, name string) (*runtimeapi.Image, error) {
	response, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	return response.GetImage(), plain(err)
}

// pullsAtOnce bounds how many images are pulled at the same time.
const pullsAtOnce = 5

// pullAll pulls images. It returns a line for each that it has pulled, in the order of their
// names, and an error for each other one.
func (c *criClient) pullAll(ctx context.Context, names []string) ([]string, error) {
	lines, errs := make([]string, len(names)), make([]error, len(names))
	var pulling sync.WaitGroup
	atOnce := make(chan struct{}, pullsAtOnce)
	for i, name := range names {
		atOnce <- struct{}{}
		pulling.Go(func() {
			defer func() { <-atOnce }()
			var err error
			if lines[i], err = c.pull(ctx, name); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	pulling.Wait()
	return lines, errors.Join(errs...)
}

// pull pulls an image, and returns a line with its name, ID and size.
func (c *criClient) pull(ctx context.Context, name string) (string, error) {
	full, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", fmt.Errorf("it is not the name of an image, as docker.io/library/busybox:1: %w", err)
	}
	response, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: full.String()}})
	if err != nil {
		return "", explain(plain(err), reference.Domain(full))
	}
	image, err := c.find(ctx, response.GetImageRef())
	if err != nil {
		return "", err
	}
	if image == nil {
		return "", errors.New("it was pulled, and has been removed since: pull it again")
	}
	return fmt.Sprintf("%s  %s  %s\n", full, image.GetId(), humanSize(int64(image.GetSize()))), nil //nolint:gosec // no image has 2^63 bytes
}

// explain adds to an error of containerd about a registry what the user can do.
func explain(err error, registry string) error {
	file := "/etc/containerd/certs.d/" + registry + "/hosts.toml"
	for _, known := range []struct{ text, remedy string }{
		{"401 Unauthorized", "the registry wants a login, and this command has none: let a pod with imagePullSecrets pull the image, or import it from a file"},
		{"no basic auth credentials", "the registry wants a login, and this command has none: let a pod with imagePullSecrets pull the image, or import it from a file"},
		{"x509: ", "name the registry's certificate authority in " + file},
		{"server gave HTTP response to HTTPS client", "the registry has no TLS: name it with http:// in " + file},
	} {
		if strings.Contains(err.Error(), known.text) {
			return fmt.Errorf("%w: %s", err, known.remedy)
		}
	}
	return pulls.ExplainDamage(err)
}

// remove removes an image that nothing uses.
func (c *criClient) remove(ctx context.Context, name string) (*runtimeapi.Image, error) {
	image, err := c.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, errors.New("there is no such image; the command list prints those that exist")
	}
	// Versions of containerd before 1.7 do not report that an image is pinned.
	if image.GetPinned() || slices.Contains(image.GetRepoTags(), pause.Name) {
		return nil, errors.New("the node needs it: it is pinned")
	}
	running, err := c.containers.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("list the containers that may use it: %w", plain(err))
	}
	for _, container := range running.GetContainers() {
		if used := container.GetImageRef(); used == image.GetId() || slices.Contains(image.GetRepoDigests(), used) {
			labels := container.GetLabels()
			return nil, fmt.Errorf("the container %s of the pod %s/%s uses it: delete the pod first",
				container.GetMetadata().GetName(), labels["io.kubernetes.pod.namespace"], labels["io.kubernetes.pod.name"])
		}
	}
	if _, err := c.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image.GetId()}}); err != nil {
		return nil, plain(err)
	}
	return image, nil
}

// printImages prints a table with a line for each name of the images.
func printImages(out io.Writer, images []*runtimeapi.Image) error {
	var lines []string
	for _, image := range images {
		for _, name := range imageNames(image) {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s", name, shortID(image.GetId()), humanSize(int64(image.GetSize())))) //nolint:gosec // no image has 2^63 bytes
		}
	}
	slices.Sort(lines)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tID\tSIZE")
	for _, line := range lines {
		fmt.Fprintln(table, line)
	}
	return table.Flush()
}

// imageNames are the names of an image: those with tags or, without any, those with
// digests or its ID.
func imageNames(image *runtimeapi.Image) []string {
	switch {
	case len(image.GetRepoTags()) > 0:
		return image.GetRepoTags()
	case len(image.GetRepoDigests()) > 0:
		return image.GetRepoDigests()
	}
	return []string{image.GetId()}
}

// shortID returns as much of an ID as people compare.
func shortID(id string) string {
	if parsed, err := digest.Parse(id); err == nil {
		return parsed.Encoded()[:12]
	}
	return id
}
