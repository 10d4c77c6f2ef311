package main

import (
	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/controllers/healthserver"
	"svc.dev/svc/internal/cluster"
	"svc.dev/svc/internal/footprint"
)

func newAPIServer() *cobra.Command {
	opts := options.New()
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:   "apiserver --etcd-servers URL,...",
		Short: "Run an API server on an etcd cluster",
		Long: `Run an API server on an etcd cluster. Several may run on the same cluster at the
same time. Its flags are those of kube-apiserver.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := joined(cmd, opts.Validate()); err != nil {
				return err
			}
			if err := startLogs(cmd, logging, cmd.ErrOrStderr()); err != nil {
				return err
			}
			defer logs.FlushLogs()
			warnGates(cmd, gates.Acts)
			if err := cluster.GrantComponents(opts); err != nil {
				return err
			}
			opts.Metrics = healthserver.Metrics()
			if err := setMetrics(cmd.Context(), opts); err != nil {
				return err
			}
			ready := footprint.Start(cmd.Context())
			server, err := apiserver.New(opts)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context(), func() {
				ready()
				klog.FromContext(cmd.Context()).Info("Ready", "address", server.Address())
			})
		},
	}
	cmd.Version = release.Public(opts.Release, release.SVCVersion()).Info().GitVersion
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n") // like kube-apiserver --version
	sets := opts.Flags()
	addLogFlags(&sets, logging)
	addFlags(cmd, sets)
	return cmd
}
