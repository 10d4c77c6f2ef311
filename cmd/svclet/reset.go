package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
confirmation. With another root directory than that of the join it resets only the svclet that has
used it, and the join stays. The Node stays in the cluster until "svc kubectl delete node NAME".`,
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
		dir, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("--config-dir: %w", err)
		}
		files := join.Files{Dir: dir}
		r, err := newResetting(files, thisSystemd(), rootDir, getenv)
		if err != nil {
			return err
		}
		if err := containerd.CheckRoot(r.RootDir); err != nil {
			return fmt.Errorf("--root-dir: %w", err)
		}
		if _, err := os.Stat(r.RootDir); rootDir != "" && !r.joined && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--root-dir: %s does not exist: name the directory that svclet was run with", r.RootDir)
		}
		pods, kept, err := r.reset(cmd.Context())
		if errors.Is(err, errRuns) {
			return err
		}
		if err != nil {
			return fmt.Errorf("not all could be cleaned up; %s: %w", r.adviceAfterFailure(), err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), r.report(pods))
		if len(kept) > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is kept: svclet has not made %s\n", r.RootDir, strings.Join(kept, ", "))
		}
		for _, line := range r.kept() {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		return nil
	}
	return cmd
}

// resetting is the reset of a svclet.
type resetting struct {
	*config.Settings
	files   join.Files
	systemd systemd
	// joined reports whether the settings are those of svclet join, whose files go, too. Apart
	// is true for another svclet than the one that has joined.
	joined, apart bool
	// unit reports whether the unit of systemd is that of the join, and goes with its files;
	// otherUnit is true for another one, which stays.
	unit, otherUnit bool
	// unitArgs is the command line in the unit if only the unit has it.
	unitArgs []string
	// lost reports whether the configuration file is gone that svclet was run with: what it has
	// recorded says then where its pods are.
	lost bool
	// left is what svclet has made, once that has been determined.
	left containerd.Leavings
}

// newResetting returns the reset of the svclet that has joined, with its settings, or of the one
// that has used the directory rootDir.
func newResetting(files join.Files, systemd systemd, rootDir string, getenv func(string) string) (*resetting, error) {
	args, err := files.ReadArguments()
	if err != nil {
		return nil, err
	}
	unitArgs, err := systemd.arguments()
	if err != nil && rootDir == "" {
		return nil, fmt.Errorf("%w: stop svclet and remove the unit by hand, then reset with --root-dir", err)
	}
	first, found := join.FilesOf(unitArgs)
	r := &resetting{files: files, systemd: systemd, unit: found && first == files}
	r.otherUnit = !r.unit && (unitArgs != nil || err != nil)
	configuration := "--config=" + files.Configuration()
	_, err = os.Stat(files.Configuration())
	lost := errors.Is(err, fs.ErrNotExist)
	if args == nil && r.unit {
		args, r.unitArgs = unitArgs, unitArgs
	}
	if lost && slices.Contains(args, configuration) {
		r.lost = true
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == configuration })
	}
	byFile := args == nil && files.Joined() // by a release that did not write the command line
	if byFile {
		r.lost = lost
	}
	if byFile && !lost {
		args = []string{configuration}
	}
	r.joined = args != nil || byFile
	if err := r.load(args, getenv); err != nil || rootDir == "" {
		return r, err
	}
	dir, err := filepath.Abs(rootDir)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	if r.joined && !byFile && dir != r.RootDir {
		args, r.joined, r.apart = nil, false, true
	}
	return r, r.load(append(args, "--root-dir="+dir), getenv)
}

// load sets the settings to those of a command line.
func (r *resetting) load(args []string, getenv func(string) string) (err error) {
	if r.Settings, err = config.Load(args, getenv); err != nil {
		return fmt.Errorf("the settings of svclet, with which it has joined, are needed to find its pods: %w", err)
	}
	if r.RootDir, err = filepath.Abs(r.RootDir); err != nil {
		return fmt.Errorf("--root-dir: %w", err)
	}
	return nil
}

// adviceAfterFailure returns what the user can do if not all could be cleaned up.
func (r *resetting) adviceAfterFailure() string {
	const gone = "run it again while the container runtime at %s runs; if that is gone for good, remove "
	if recorded, err := r.recorded(); err == nil && recorded != nil && recorded.Endpoint != "" {
		return fmt.Sprintf(gone+"%s before", recorded.Endpoint, filepath.Join(r.RootDir, containerd.LeavingsFile))
	}
	if endpoint := r.Configuration.ContainerRuntimeEndpoint; endpoint != "" {
		return fmt.Sprintf(gone+"--container-runtime-endpoint from %s, and containerRuntimeEndpoint from the configuration file, before",
			endpoint, r.files.ArgumentsFile())
	}
	return "run it again, or restart the machine"
}

// report returns what is printed after a reset that has ended a number of pods.
func (r *resetting) report(pods int) string {
	if r.left.Endpoint != "" {
		return fmt.Sprintf("svclet and its pods (%d) have been removed; the container runtime at %s keeps running", pods, r.left.Endpoint)
	}
	return fmt.Sprintf("svclet, its container runtime and its pods (%d) have been removed", pods)
}

// kept returns lines for the user about the files of the join that stay after the reset.
func (r *resetting) kept() (lines []string) {
	if _, err := os.Stat(r.files.Configuration()); err == nil && r.joined {
		lines = append(lines, r.files.Configuration()+" is kept: it is not as svclet join has written it")
	}
	if r.otherUnit && !r.apart {
		lines = append(lines, r.systemd.unitFile+" is kept: it is not that of the join; remove it if it runs the svclet that has been reset")
	}
	return lines
}

// recorded returns what a svclet that has not joined, or whose configuration file is gone, has
// recorded that it leaves; nil for none.
func (r *resetting) recorded() (*containerd.Leavings, error) {
	if r.joined && !r.lost {
		return nil, nil
	}
	return containerd.RecordedLeavings(r.RootDir)
}

// leavings returns what svclet has made: what it has recorded or, if it has joined and its
// configuration file is there, what follows from its settings.
func (r *resetting) leavings(ctx context.Context) (containerd.Leavings, error) {
	recorded, err := r.recorded()
	if err != nil {
		return containerd.Leavings{}, err
	}
	if recorded != nil {
		return *recorded, nil
	}
	if err := agent.UseCgroupDriver(ctx, r.Gates, r.Configuration); err != nil {
		return containerd.Leavings{}, err
	}
	return leavings(r.Settings), nil
}

// reset stops svclet and removes what it has made. It continues after errors. It returns the
// number of pods, and the names of what others have made in the root directory.
func (r *resetting) reset(ctx context.Context) (pods int, kept []string, err error) {
	var errs []error
	if r.joined && r.unit {
		if err := r.keepArguments(); err != nil {
			return 0, nil, err
		}
		errs = append(errs, r.systemd.remove(ctx))
	}
	lock, err := agent.LockRoot(r.RootDir)
	if inUse := (*agent.InUseError)(nil); errors.As(err, &inUse) && errors.Join(errs...) == nil {
		return 0, nil, fmt.Errorf("--root-dir: %s %w", r.RootDir, errRuns)
	}
	if err != nil {
		return 0, nil, errors.Join(append(errs, err)...)
	}
	defer lock.Close()
	// Without these programs pods are killed instead of stopped gracefully.
	programs, err := containerd.Find(containerd.DefaultSearch())
	if missing := (*containerd.MissingError)(nil); err != nil && !errors.As(err, &missing) {
		errs = append(errs, err)
	}
	if r.left, err = r.leavings(ctx); err != nil {
		return 0, nil, errors.Join(append(errs, err)...)
	}
	pods, err = containerd.Reset(ctx, containerd.Config{Dir: containerdDir(r.RootDir), Programs: programs}, r.left)
	if slice := filepath.Base(r.left.Cgroup); r.systemd.runs && strings.HasSuffix(slice, ".slice") {
		err = errors.Join(err, systemctl(ctx, "stop", slice))
	}
	if errs = append(errs, err); errors.Join(errs...) == nil {
		kept, err = containerd.RemoveRoot(ctx, r.RootDir)
		errs = append(errs, err)
	}
	if !r.apart {
		errs = append(errs, r.removeDelay(ctx))
	}
	if err := errors.Join(errs...); err != nil || !r.joined {
		return pods, kept, err // the files are needed to run it again
	}
	return pods, kept, r.files.Remove()
}

// errRuns is why a root directory cannot be reset: its svclet was not started by systemd.
var errRuns = errors.New("is in use by a svclet that is not the service of the join: stop it, and run this again")

// keepArguments writes the command line that only the unit has to the files, for another reset if
// this one fails after it has removed the unit.
func (r *resetting) keepArguments() error {
	if r.unitArgs == nil {
		return nil
	}
	if err := os.MkdirAll(r.files.Dir, 0o755); err != nil {
		return err
	}
	return r.files.WriteArguments(r.unitArgs)
}

// removeDelay removes the delay of shutdowns of the machine that svclet has given logind.
func (r *resetting) removeDelay(ctx context.Context) error {
	removed, err := shutdown.RemoveDelay()
	if err != nil || !removed || !r.systemd.runs {
		return err
	}
	return systemctl(ctx, "kill", "--signal=HUP", "systemd-logind.service")
}

// leavings are what svclet has made with these settings.
func leavings(s *config.Settings) containerd.Leavings {
	c := s.Configuration
	left := containerd.Leavings{Dir: s.RootDir, LogsDir: c.PodLogsDir, LinksDir: agent.DefaultLogLinksDir, Endpoint: c.ContainerRuntimeEndpoint}
	if *c.CgroupsPerQOS { // otherwise the pods are in a cgroup of the administrator's
		left.Cgroup = cgroup.Driver(c.CgroupDriver).PodsPath(c.CgroupRoot, true)
	}
	return left
}
