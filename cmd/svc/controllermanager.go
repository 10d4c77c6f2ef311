package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/controllers"
	"svc.dev/svc/controllers/healthserver"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/connection"
	"svc.dev/svc/internal/footprint"
)

func newControllerManager() *cobra.Command {
	opts, port := controllers.NewOptions(), healthserver.NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	var file string
	cmd := &cobra.Command{
		Use:   "controller-manager --svcconfig FILE",
		Short: "Run the controllers against an API server",
		Long: `Run the controllers against an API server: "svc up" runs them already. Several
may run at the same time; one of them works, and the others wait to take its
place. Its flags are those of kube-controller-manager.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := joined(cmd, append(opts.Validate(), port.Validate()...)); err != nil {
				return err
			}
			api, err := readConnection(file)
			if err != nil {
				return usageError{err, cmd}
			}
			if err := startLogs(cmd, logging, cmd.ErrOrStderr()); err != nil {
				return err
			}
			defer logs.FlushLogs()
			warnGates(cmd, actsOnControllers)
			opts.Included, opts.Gate = included, gate
			return runManager(cmd.Context(), opts, port, file, api)
		},
	}
	var sets cliflag.NamedFlagSets
	sets.FlagSet("API server").StringVar(&file, "svcconfig", "",
		"File that says how to reach the API server, and as whom (kubeconfig format). \"svc up\" writes one: controller-manager.svcconfig in its --data-dir. Without it, the service account of the pod that this runs in is used.")
	opts.AddFlags(&sets)
	port.AddFlags(&sets)
	gates.AddFlag(sets.FlagSet("features"), utilfeature.DefaultMutableFeatureGate, actsOnControllers)
	addLogFlags(&sets, logging)
	addFlags(cmd, sets)
	return cmd
}

// readConnection reads the file of --svcconfig or, without one, the credentials of the
// pod's service account.
func readConnection(file string) (*rest.Config, error) {
	if file == "" {
		api, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("--svcconfig: name a file; only in a pod it may be left out")
		}
		if err != nil {
			return nil, fmt.Errorf("--svcconfig: it is left out, and the pod's service account cannot be used: %w", err)
		}
		return api, nil
	}
	api, err := connection.Read(file)
	if err != nil {
		return nil, fmt.Errorf("--svcconfig: %w", err)
	}
	return api, nil
}

// runManager opens the port, waits for the API server, and runs the controllers
// until ctx is done.
func runManager(ctx context.Context, opts *controllers.Options, port *healthserver.Options, file string, api *rest.Config) error {
	if err := cluster.CheckPort(port.SecureServing); err != nil && port.SecureServing.BindPort != 0 {
		return err
	}
	server, err := healthserver.Listen(port)
	if err != nil {
		return err
	}
	holder, err := cluster.UniqueHolder()
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	manager, err := controllers.New(controllers.Config{Options: opts, API: api, Holder: holder, Working: func() {
		background.Go(func() { footprint.Settle(ctx) }) // the caches have just been filled
	}})
	if err != nil {
		return fmt.Errorf("--svcconfig: %s: %w", file, err)
	}
	if err := manager.Preflight(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // the user wants it to end
		}
		return fmt.Errorf("--svcconfig: %s: %w", file, err)
	}
	background.Go(func() { footprint.Run(ctx) })
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped, err := server.Serve(serve, file, manager.HealthChecks())
	if err != nil {
		stop()
		return err
	}
	err = manager.Run(ctx)
	stop()
	<-stopped
	return err
}
