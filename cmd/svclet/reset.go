package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/join"
	"svc.dev/svc/svclet/shutdown"
)

func newReset(getenv func(string) string) *cobra.Command {
	var dir, rootDir string
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo svclet join: stop svclet and its pods, and remove what they had",
		Long: `Undo svclet join: stop svclet, all pods and the containerd of svclet, and remove what they had:
volumes, mounts, cgroups, networks, logs, images, certificates, the longer delay of
shutdowns in logind's configuration, and the files of the join. A container runtime of yours (--container-runtime-endpoint) keeps running, without
pods. A configuration file that you have written or changed stays, and so does what is in the
root directory and svclet does not make. A directory that no svclet has used is refused. It does not ask for
confirmation. The Node stays in the cluster until "svc kubectl delete node NAME".`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: only flags are taken", args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "config-dir", join.DefaultDir, "Directory of the files that svclet join has written.")
	cmd.Flags().StringVar(&rootDir, "root-dir", "", "Root directory of svclet (default that of the join, or else "+config.DefaultFlags().RootDir+").")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if os.Geteuid() != 0 {
			return errors.New("only root can do this")
		}
		files := join.Files{Dir: dir}
		settings, err := joinedSettings(files, rootDir, getenv)
		if err != nil {
			return err
		}
		if err := containerd.CheckRoot(settings.RootDir); err != nil {
			return fmt.Errorf("--root-dir: %w", err)
		}
		pods, kept, err := reset(cmd.Context(), files, settings)
		if err != nil {
			return fmt.Errorf("not all could be cleaned up; %s: %w", adviceAfterFailure(files, settings), err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "svclet, its container runtime and its pods (%d) have been removed\n", pods)
		if len(kept) > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is kept: svclet has not made %s\n", settings.RootDir, strings.Join(kept, ", "))
		}
		if _, err := os.Stat(files.Configuration()); err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is kept: it is not as svclet join has written it\n", files.Configuration())
		}
		return nil
	}
	return cmd
}

// adviceAfterFailure returns what the user can do if not all could be cleaned up.
func adviceAfterFailure(files join.Files, s *config.Settings) string {
	if endpoint := s.Configuration.ContainerRuntimeEndpoint; endpoint != "" {
		return fmt.Sprintf("run it again while the container runtime at %s runs; if that is gone for good, remove --container-runtime-endpoint from %s, and containerRuntimeEndpoint from the configuration file, before",
			endpoint, files.ArgumentsFile())
	}
	return "run it again, or restart the machine"
}

// joinedSettings returns the settings of svclet with the command line of the join, or else
// with its configuration file or the defaults, and with another root directory if rootDir
// names one.
func joinedSettings(files join.Files, rootDir string, getenv func(string) string) (*config.Settings, error) {
	args, err := files.ReadArguments()
	if err != nil {
		return nil, err
	}
	if args == nil && files.Joined() { // by a release that did not write the command line
		if _, err := os.Stat(files.Configuration()); err == nil {
			args = []string{"--config=" + files.Configuration()}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if rootDir != "" {
		args = append(args, "--root-dir="+rootDir)
	}
	settings, err := config.Load(args, getenv)
	if err != nil {
		return nil, fmt.Errorf("the settings of svclet, with which it has joined, are needed to find its pods: %w", err)
	}
	if settings.RootDir, err = filepath.Abs(settings.RootDir); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	return settings, nil
}

// reset stops svclet and removes what it has made. It continues after errors. It returns the
// number of pods, and the names of what others have made in the root directory.
func reset(ctx context.Context, files join.Files, s *config.Settings) (pods int, kept []string, err error) {
	var errs []error
	systemd := hasSystemd()
	if _, err := os.Stat(join.UnitFile); err == nil && systemd {
		errs = append(errs, systemctl(ctx, "disable", "--now", filepath.Base(join.UnitFile)), os.Remove(join.UnitFile), systemctl(ctx, "daemon-reload"))
	}
	lock, err := agent.LockRoot(s.RootDir)
	if err != nil {
		return 0, nil, errors.Join(append(errs, err)...)
	}
	defer lock.Close()
	// Without these programs pods are killed instead of stopped gracefully.
	programs, err := containerd.Find(containerd.DefaultSearch())
	if missing := (*containerd.MissingError)(nil); err != nil && !errors.As(err, &missing) {
		errs = append(errs, err)
	}
	if err := agent.UseCgroupDriver(ctx, s.Gates, s.Configuration); err != nil {
		return 0, nil, errors.Join(append(errs, err)...)
	}
	left := leavings(s)
	pods, err = containerd.Reset(ctx, containerd.Config{Dir: containerdDir(s.RootDir), Programs: programs}, left)
	if systemd && left.Cgroup != "" && s.Configuration.CgroupDriver == string(cgroup.Systemd) {
		err = errors.Join(err, systemctl(ctx, "stop", filepath.Base(left.Cgroup)))
	}
	if errs = append(errs, err); errors.Join(errs...) == nil {
		kept, err = containerd.RemoveRoot(ctx, s.RootDir)
		errs = append(errs, err)
	}
	errs = append(errs, removeDelay(ctx))
	if err := errors.Join(errs...); err != nil {
		return pods, kept, err // the files are needed to run it again
	}
	return pods, kept, files.Remove()
}

// removeDelay removes the delay of shutdowns of the machine that svclet has given logind.
func removeDelay(ctx context.Context) error {
	removed, err := shutdown.RemoveDelay()
	if err != nil || !removed || !hasSystemd() {
		return err
	}
	return systemctl(ctx, "kill", "--signal=HUP", "systemd-logind.service")
}

// leavings are what svclet has made with these settings.
func leavings(s *config.Settings) containerd.Leavings {
	c := s.Configuration
	left := containerd.Leavings{Dir: s.RootDir, LogsDir: c.PodLogsDir, Endpoint: c.ContainerRuntimeEndpoint}
	if *c.CgroupsPerQOS { // otherwise the pods are in a cgroup of the administrator's
		left.Cgroup = cgroup.Driver(c.CgroupDriver).PodsPath(c.CgroupRoot, true)
	}
	return left
}
