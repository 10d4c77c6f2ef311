package main

import (
	"context"
	"errors"
	"fmt"
	"go.opentelemetry.io/otel"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"svc.dev/svc/internal/footprint"
	"svc.dev/svc/internal/logbodies"
	"svc.dev/svc/internal/suggest"
	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/host"
)

// run is svclet: it executes the command line args and returns the exit code.
// Each error is a line on errOut.
func run(args []string, getenv func(string) string, out, errOut io.Writer) int {
	root := newCommands(getenv)
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		if slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] }) {
			return runCommand(root, args, out, errOut)
		}
		unknown := fmt.Sprintf("unknown command %q", args[0])
		if similar := root.SuggestionsFor(args[0]); len(similar) > 0 {
			unknown += fmt.Sprintf(": did you mean %q?", similar[0])
		}
		fmt.Fprintf(errOut, "svclet: %s; see 'svclet --help'\n", unknown)
		return 1
	}
	settings, err := config.Load(args, getenv)
	if err == nil {
		err = execute(settings, out)
	}
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(errOut, "svclet:", line)
	}
	return 1
}

// newCommands returns the commands that svclet has besides the agent itself.
func newCommands(getenv func(string) string) *cobra.Command {
	root := &cobra.Command{Use: "svclet", SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newImage(), newJoin(getenv), newReset(getenv), newReference())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if similar := suggest.Flag(err, cmd.Flags()); similar != "" {
			err = fmt.Errorf("%w: did you mean --%s?", err, similar)
		}
		return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
	})
	return root
}

func execute(s *config.Settings, out io.Writer) error {
	if s.Help {
		return config.WriteHelp(out, width(out))
	}
	version, answered, err := reportVersion(s.Version, out)
	if err != nil || answered {
		return err
	}
	if err := checkSources(s); err != nil {
		return s.Locate(err)
	}
	if err := startLogs(s); err != nil {
		return err
	}
	if err := setClientFeatures(s.Gates); err != nil {
		return err
	}
	defer logs.FlushLogs()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends svclet at once
	err = runAgent(ctx, s, agent.Config{Flags: s.Flags, Gates: s.Gates, Configuration: s.Configuration, Version: version, SetVerbosity: setVerbosity})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return s.Locate(err)
}

// width returns the width of the terminal, or 80.
func width(out io.Writer) int {
	if columns, _, err := term.TerminalSize(out); err == nil && columns > 0 {
		return min(columns, 120)
	}
	return 80
}

// startLogs configures the logs, and logs the warnings of the settings.
func startLogs(s *config.Settings) error {
	logs.InitLogs()
	ctrllog.SetLogger(klog.Background())
	if err := logsapi.ValidateAndApplyWithOptions(&s.Configuration.Logging, &logsapi.LoggingOptions{
		ErrorStream: logbodies.Drop(os.Stderr), InfoStream: logbodies.Drop(os.Stdout),
	}, s.FeatureGates); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	// Contextual logging is on regardless of its feature gate: it silences libraries
	// whose errors svclet handles.
	klog.EnableContextualLogging(true)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		klog.Background().Info("Failed to send spans", "err", err)
	}))
	for _, warning := range s.Warnings {
		klog.Background().Info(warning)
	}
	klog.Background().V(5).Info("Configuration in force", "configuration", klog.Format(config.Shown(s.Configuration)))
	return nil
}

// setVerbosity sets the verbosity of the logs, which is global.
func setVerbosity(level string) error {
	_, err := logs.GlogSetter(level)
	return err
}

// setClientFeatures sets the feature gates of client-go, which are global, to those
// of the settings.
func setClientFeatures(gates config.Gates) error {
	features, ok := clientfeatures.FeatureGates().(interface {
		Set(feature clientfeatures.Feature, value bool) error
	})
	if !ok {
		return nil // another program embeds this package, and has set its own
	}
	return features.Set(clientfeatures.WatchListClient, gates.WatchList)
}

// runAgent runs the agent until ctx is done, or another process wants the lock
// file. It returns [context.Canceled] if ctx is done before the agent runs. Nothing is
// changed before the locks are held and the ports are open.
func runAgent(ctx context.Context, s *config.Settings, c agent.Config) error {
	machine := hostOptions(s)
	if err := host.Check(machine); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	unlock, err := lock(ctx, stop, s)
	if err != nil {
		return err
	}
	defer unlock()
	if err := agent.UseCgroupDriver(ctx, c.Gates, c.Configuration); err != nil {
		return err
	}
	held, err := agent.Lock(c)
	if err != nil {
		return err
	}
	defer held.Close()
	if s.Configuration.ContainerRuntimeEndpoint == "" {
		if err := agent.RefuseForeignPods(s.Configuration, containerdDir(s.RootDir)); err != nil {
			return err
		}
	}
	c.Listeners, err = agent.Listen(ctx, c)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: choose other ports with --port, --read-only-port and --healthz-port", err)
	}
	if err != nil {
		return err
	}
	if c.Listeners != nil {
		defer c.Listeners.Close()
	}
	if err := connect(ctx, s, &c); err != nil {
		return err
	}
	if err := leavings(s).Record(); err != nil { // the disk may be full, and the pods go on
		klog.FromContext(ctx).Error(err, "Failed to record what a reset removes")
	}
	for _, problem := range host.Prepare(ctx, machine) {
		klog.FromContext(ctx).Info("Failed to configure the host fully", "problem", problem)
	}
	if profiled := *s.Configuration.EnableDebuggingHandlers && *s.Configuration.EnableProfilingHandler; profiled && s.Configuration.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	own, err := ownRuntime(ctx, &c)
	if err != nil {
		return err
	}
	if own != nil {
		defer own.Close() // it and its pods go on
	}
	a, err := agent.New(ctx, c)
	if err == nil {
		err = held.LockCgroup(c) // which did not exist before the first start
	}
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil && own != nil && !own.Adopted:
		// An agent that cannot be made leaves no containerd of its own start.
		return errors.Join(err, own.Stop(ctx))
	case err != nil:
		return err
	case s.Configuration.RunOnce:
		return a.RunOnce(ctx)
	}
	var settling sync.WaitGroup
	settling.Go(func() { footprint.Limit(ctx); footprint.Settle(ctx); footprint.Rest(ctx) })
	defer settling.Wait()
	defer stop()
	return a.Run(ctx)
}

// lock locks the lock file, if one is configured. If the agent must exit on
// contention, lock calls stop when another process wants the file. The caller calls
// unlock at the end.
func lock(ctx context.Context, stop func(), s *config.Settings) (unlock func(), err error) {
	if s.LockFile == "" {
		return func() {}, nil
	}
	held, err := host.Lock(ctx, s.LockFile, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	var watching sync.WaitGroup
	if s.ExitOnLockContention {
		contention, err := held.Watch()
		if err != nil {
			return nil, errors.Join(err, held.Close())
		}
		watching.Go(func() {
			if contention.Wait(ctx) {
				stop()
			}
		})
	}
	return func() {
		stop()
		watching.Wait()
		_ = held.Close() // the process exits
	}, nil
}

func hostOptions(s *config.Settings) host.Options {
	c := s.Configuration
	return host.Options{
		FailSwapOn: *c.FailSwapOn, FailCgroupV1: *c.FailCgroupV1, ProtectKernelDefaults: c.ProtectKernelDefaults,
		KillWholeContainers: c.SingleProcessOOMKill != nil && !*c.SingleProcessOOMKill, ReservedCPUs: c.ReservedSystemCPUs,
		OOMScoreAdj: *c.OOMScoreAdj, MaxOpenFiles: c.MaxOpenFiles, Cgroup: c.KubeletCgroups,
	}
}
