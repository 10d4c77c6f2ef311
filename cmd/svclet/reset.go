package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/join"
)

func newReset() *cobra.Command {
	var dir, rootDir string
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo svclet join: stop svclet and its pods, and remove what they had",
		Long: `Undo svclet join: stop svclet, all pods and the containerd of svclet, and remove what they had:
volumes, mounts, cgroups, networks, logs, images, certificates, and the files of the
join. It does not ask for confirmation. The Node stays in the cluster until
"svc kubectl delete node NAME".`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&dir, "config-dir", join.DefaultDir, "Directory of the files that svclet join has written.")
	cmd.Flags().StringVar(&rootDir, "root-dir", config.DefaultFlags().RootDir, "Root directory of svclet.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root can do this")
		}
		absolute, err := filepath.Abs(rootDir)
		if err != nil {
			return fmt.Errorf("--root-dir: %w", err)
		}
		pods, err := reset(cmd.Context(), join.Files{Dir: dir}, absolute)
		if err != nil {
			return fmt.Errorf("not all could be cleaned up; run it again, or restart the machine: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "svclet, its container runtime and its pods (%d) have been removed\n", pods)
		return nil
	}
	return cmd
}

// reset stops svclet and removes what it has made. It continues after errors.
func reset(ctx context.Context, files join.Files, rootDir string) (pods int, err error) {
	var errs []error
	if _, err := os.Stat(join.UnitFile); err == nil && hasSystemd() {
		errs = append(errs, systemctl(ctx, "disable", "--now", filepath.Base(join.UnitFile)), os.Remove(join.UnitFile), systemctl(ctx, "daemon-reload"))
	}
	lock, err := lockRoot(rootDir)
	if err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	defer lock.Close()
	// Without these programs pods are killed instead of stopped gracefully.
	programs, err := containerd.Find(containerd.DefaultSearch())
	if missing := (*containerd.MissingError)(nil); err != nil && !errors.As(err, &missing) {
		errs = append(errs, err)
	}
	pods, err = containerd.Reset(ctx, containerd.Config{Dir: containerdDir(rootDir), Programs: programs}, containerd.Leavings{
		Dir: rootDir, LogsDir: config.Default().PodLogsDir, Cgroup: "kubepods",
	})
	if errs = append(errs, err); errors.Join(errs...) == nil {
		errs = append(errs, containerd.RemoveUnmounted(rootDir))
	}
	if err := files.Remove(); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return pods, errors.Join(errs...)
}
