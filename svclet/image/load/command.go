package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
)

// progressPeriod is the time before the first progress line of an import, and
// between two lines.
const progressPeriod = 2 * time.Second

// NewCommand returns the command "image" with its subcommands. extra are the flags
// from which endpoint finds containerd if the command line has no endpoint; startedBy is the
// command that starts that containerd.
func NewCommand(extra *pflag.FlagSet, startedBy string, endpoint func(*cobra.Command) (string, error)) *cobra.Command {
	image := &cobra.Command{
		Use:   "image",
		Short: "Manage the images of this machine's node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []func(*runtimeFlag) *cobra.Command{newImport, newList, newPull, newRemove} {
		flag := &runtimeFlag{byDefault: endpoint, startedBy: startedBy}
		cmd := c(flag)
		cmd.Flags().StringVar(&flag.endpoint, "container-runtime-endpoint", "",
			"Socket of the containerd that has the images (unix:///run/containerd/containerd.sock). The default is that of the node's own containerd.")
		cmd.Flags().AddFlagSet(extra)
		image.AddCommand(cmd)
	}
	return image
}

// runtimeFlag is the flag that names the socket of containerd.
type runtimeFlag struct {
	endpoint  string
	byDefault func(*cobra.Command) (string, error)
	// startedBy is the command that starts the containerd of byDefault.
	startedBy string
}

// of returns the socket for a command, and the command that starts what listens there, if that
// is known.
func (f *runtimeFlag) of(cmd *cobra.Command) (endpoint, startedBy string, err error) {
	if f.endpoint != "" {
		return f.endpoint, "", nil
	}
	endpoint, err = f.byDefault(cmd)
	return endpoint, f.startedBy, err
}

func newImport(runtime *runtimeFlag) *cobra.Command {
	var opts Options
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Import images from tar archives",
		Long: `Import images from tar archives, so that pods of this machine can use them
without a registry: archives of "docker save", and OCI image layouts, which most
other tools write. They may be compressed with gzip. "-" reads standard input.

It prints the name, the digest and the size of each image.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "") {
				return errors.New("name the files to import, or - for standard input")
			}
			if len(args) > 1 && opts.Name != "" {
				return errors.New("--name is for a single file: import the others by themselves")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) (err error) {
			if opts.Endpoint, opts.StartedBy, err = runtime.of(cmd); err != nil {
				return err
			}
			for _, file := range files {
				if err := importFile(cmd, opts, file); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&opts.Name, "name", "", "Name to give to the image, with its tag, instead of the one in the file.")
	return cmd
}

func importFile(cmd *cobra.Command, opts Options, name string) error {
	file, size := cmd.InOrStdin(), int64(0)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return pathless(err)
		}
		defer f.Close()
		stat, err := f.Stat()
		if err != nil {
			return pathless(err)
		}
		if stat.IsDir() {
			return errors.New("it is a directory: an archive was expected; tar -C DIR -cf FILE . makes one of an OCI image layout")
		}
		file, size = f, stat.Size()
	}
	imported, err := importWithProgress(cmd, opts, name, file, size)
	for _, image := range imported {
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %s\n", image.Name, image.Digest, humanSize(image.Size))
	}
	return err
}

// importWithProgress imports, and writes progress lines if that takes long.
func importWithProgress(cmd *cobra.Command, opts Options, name string, file io.Reader, size int64) ([]Imported, error) {
	var read atomic.Int64
	opts.Progress = read.Store
	ctx, stop := context.WithCancel(cmd.Context())
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := clock.RealClock{}.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
			}
			of := ""
			if size > 0 {
				of = " of " + humanSize(size)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: still importing: %s%s read\n", cmd.CommandPath(), name, humanSize(read.Load()), of)
		}
	})
	imported, err := Import(cmd.Context(), opts, file)
	stop()
	progress.Wait()
	return imported, err
}

// humanSize formats a number of bytes in a readable unit.
func humanSize(bytes int64) string {
	const unit = 1024
	value, names := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.4g %s", value, names[0])
}

// pathless returns err without the name of the file.
func pathless(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
