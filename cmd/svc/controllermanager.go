package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/controllers"
)

func newControllerManager() *cobra.Command {
	opts := controllers.NewOptions()
	logging := logsapi.NewLoggingConfiguration()
	var config string
	cmd := &cobra.Command{
		Use:   "controller-manager --svcconfig FILE",
		Short: "Run the controllers against an API server",
		Long: `Run the controllers against an API server: "svc up" runs them already. Several
may run at the same time; one of them works, and the others wait to take its
place. Its flags are those of kube-controller-manager.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := joined(cmd, opts.Validate()); err != nil {
				return err
			}
			if err := startLogs(cmd, logging, cmd.ErrOrStderr()); err != nil {
				return err
			}
			defer logs.FlushLogs()
			// Without a file: the service account of the pod that this runs in.
			api, err := clientcmd.BuildConfigFromFlags("", config)
			if err != nil {
				return usageError{fmt.Errorf("--svcconfig: %w", err), cmd}
			}
			if err := controllers.Await(cmd.Context(), api, opts); err != nil {
				return fmt.Errorf("--svcconfig: %s: %w", config, err)
			}
			holder, err := uniqueHolder()
			if err != nil {
				return err
			}
			return controllers.Run(cmd.Context(), controllers.Config{Options: opts, API: api, Holder: holder})
		},
	}
	var sets cliflag.NamedFlagSets
	sets.FlagSet("API server").StringVar(&config, "svcconfig", "",
		"File that says how to reach the API server, and as whom (kubeconfig format). \"svc up\" writes one: controller-manager.svcconfig in its --data-dir. Without it, the service account of the pod that this runs in is used.")
	opts.AddFlags(&sets)
	addLogFlags(&sets, logging)
	addFlags(cmd, sets)
	cmd.Flags().SetNormalizeFunc(svcconfigToo)
	return cmd
}

// svcconfigToo lets --kubeconfig stand for --svcconfig.
func svcconfigToo(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "kubeconfig" {
		name = "svcconfig"
	}
	return pflag.NormalizedName(name)
}

// uniqueHolder names this process in a lease.
func uniqueHolder() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// grantControllers gives the controllers their rights at the API server.
func grantControllers(o *options.Options) error {
	rules, err := controllers.Rules()
	if err != nil {
		return err
	}
	o.Authorization.Components = append(o.Authorization.Components, authorization.Grant{User: controllers.User, Rules: rules})
	return nil
}
