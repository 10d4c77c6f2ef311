package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
)

// newImage is svc image, which is svclet's, too.
func newImage() *cobra.Command {
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	dataDir := dataDirFlag(flags)
	cmd := load.NewCommand(flags, func() (string, error) {
		dir, err := dataDir()
		return containerd.Config{Dir: containerdDir(dir)}.Endpoint(), err
	})
	cmd.Args, cmd.SuggestionsMinimumDistance = noCommand, 2
	return cmd
}

func newNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Manage this machine as a node",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newNodeReset())
	return cmd
}

func newNodeReset() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "End all pods of this machine's node, and its container runtime",
		Long: `End all pods of this machine's node and the containerd that svc runs for them,
and remove what they had: volumes, mounts, networks. It asks nothing before.

Pods outlive "svc up", which has to be stopped first. Images and the cluster's
data are kept: pods that are still in the cluster start again with the next
"svc up".`,
		Args: noArguments,
	}
	dataDir := dataDirFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := dataDir()
		if err != nil {
			return err
		}
		if !exists(dir) {
			return fmt.Errorf("--data-dir: %s does not exist: name the directory that svc up was run with", dir)
		}
		if !exists(containerdDir(dir)) && !exists(svcletDir(dir)) {
			return fmt.Errorf("--data-dir: no node has run in %s: name the directory that svc up was run with", dir)
		}
		if os.Geteuid() != 0 {
			return errors.New("only root can do this")
		}
		lock, err := openDataDir(dir)
		if err != nil {
			return err
		}
		defer lock.Close()
		return resetNode(cmd, dir)
	}
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func resetNode(cmd *cobra.Command, dir string) error {
	// Without the programs pods end less gently, but they end.
	programs, err := containerd.Find(containerd.DefaultSearch())
	if missing := (*containerd.MissingError)(nil); err != nil && !errors.As(err, &missing) {
		return err
	}
	config := (&nodeOptions{}).containerd(dir, programs)
	var ended int
	err = telling(cmd.ErrOrStderr(), cmd.CommandPath()+": still ending pods", func() (err error) {
		ended, err = containerd.Reset(cmd.Context(), config, containerd.Leavings{
			Dir: svcletDir(dir), LogsDir: logsDir(dir), Cgroup: cgroupOf(dir),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("not all could be cleaned up; run it again, or start the machine anew: %w", err)
	}
	pods := "1 pod has"
	if ended != 1 {
		pods = fmt.Sprintf("%d pods have", ended)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s been ended, and the container runtime with them; their volumes, mounts and networks are removed\n", pods)
	return nil
}
