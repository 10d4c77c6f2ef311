package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/internal/progress"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
)

// newImage returns the command svc image, which svclet has, too.
func newImage() *cobra.Command {
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	dataDir := dataDirFlag(flags)
	cmd := load.NewCommand(flags, "svc up", func(cmd *cobra.Command) (string, error) {
		choice, err := dataDir(cmd)
		if err != nil {
			return "", err
		}
		return imagesOf(datadir.CurrentUser(), choice)
	})
	cmd.Args, cmd.SuggestionsMinimumDistance = noCommand, 2
	return cmd
}

// imagesOf returns the socket of the containerd of a data directory.
func imagesOf(user datadir.User, choice datadir.Choice) (string, error) {
	dir := choice.Dir.Containerd()
	if user.ID != 0 && !exists(dir) {
		return "", fmt.Errorf("no containers run on %s: only the svc up of root runs some: use sudo, or name the socket of another containerd with --container-runtime-endpoint", choice)
	}
	return containerd.Config{Dir: dir}.Endpoint(), nil
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
		Short: "Stop all pods of this machine's node, and its container runtime",
		Long: `Stop all pods of this machine's node and the containerd that svc runs for them,
and remove what they had: volumes, mounts, networks. It does not ask for confirmation.

Pods keep running after "svc up", which has to be stopped first. Images and the cluster's
data are kept: pods that are still in the cluster start again with the next
"svc up".`,
		Args: noArguments,
	}
	dataDir := namedDataDirFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		choice, err := dataDir(cmd)
		if err != nil {
			return err
		}
		dir := choice.Dir
		if !exists(string(dir)) {
			return fmt.Errorf("--data-dir: %s does not exist: name the directory that svc up was run with", dir)
		}
		if !exists(dir.Containerd()) && !exists(dir.Svclet()) {
			return fmt.Errorf("--data-dir: no node has run in %s: name the directory that svc up was run with", dir)
		}
		if os.Geteuid() != 0 {
			return errors.New("only root can do this")
		}
		lock, err := dir.Open()
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

func resetNode(cmd *cobra.Command, dir datadir.Dir) error {
	// Without these programs pods are killed instead of stopped gracefully.
	programs, err := containerd.Find(containerd.DefaultSearch())
	if missing := (*containerd.MissingError)(nil); err != nil && !errors.As(err, &missing) {
		return err
	}
	config := (&cluster.NodeOptions{}).Containerd(dir, programs)
	var ended int
	err = progress.While(cmd.ErrOrStderr(), clock.RealClock{}, cmd.CommandPath()+": still stopping pods", func() (err error) {
		ended, err = containerd.Reset(cmd.Context(), config, containerd.Leavings{
			Dir: dir.Svclet(), LogsDir: dir.PodLogs(), LinksDir: dir.LogLinks(), Cgroup: dir.Cgroup(),
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("not all could be cleaned up; run it again, or restart the machine: %w", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), resetReport(dir, ended))
	return nil
}

// resetReport returns what is printed after a reset that has ended a number of pods of a data
// directory.
func resetReport(dir datadir.Dir, ended int) string {
	switch ended {
	case 0:
		return fmt.Sprintf("no pod of %s was running; what was left of pods and of the container runtime is removed", dir)
	case 1:
		return fmt.Sprintf("1 pod of %s has been ended, and the container runtime with it; its volumes, mounts and networks are removed", dir)
	}
	return fmt.Sprintf("%d pods of %s have been ended, and the container runtime with them; their volumes, mounts and networks are removed", ended, dir)
}
