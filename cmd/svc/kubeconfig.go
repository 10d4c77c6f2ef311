package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"svc.dev/svc/apiserver/groupdomain"
)

func newKubeconfig() *cobra.Command {
	var domain, fleet string
	cmd := &cobra.Command{
		Use:   "kubeconfig --group-domain DOMAIN",
		Short: "Print a kubeconfig of a fleet behind a host cluster",
		Long: `Print a kubeconfig with which kubectl, Helm and every other client of Kubernetes works
on a fleet behind a host cluster. Its server is the fleet's own address at the host, and
its user the one of the host's kubeconfig, which --host-kubeconfig (or --svcconfig) or
KUBECONFIG names. The host must grant the user fleets/proxy in the group fleet.DOMAIN, and what the user may
do in the fleet.`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&domain, "group-domain", "", "The domain of the API groups, as the API servers have it: svc.dev, for example.")
	cmd.Flags().StringVar(&fleet, "fleet-name", "default", "The name of the fleet, as the API servers have it.")
	connection := connectionFlag(cmd, "host-kubeconfig") // as the API servers have it
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if domain == "" {
			return usageError{errors.New("--group-domain: name the domain of the fleet's groups"), cmd}
		}
		names, err := groupdomain.New(domain)
		if err != nil {
			return usageError{fmt.Errorf("--group-domain: %w", err), cmd}
		}
		host, err := connection.content()
		if err != nil {
			return err
		}
		printed, err := clientcmd.Write(*fleetConfig(host, fleet+"."+domain, names.FleetPath(fleet)))
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(printed)
		return err
	}
	return cmd
}

// fleetConfig returns a kubeconfig with one cluster and context of a name, whose server is
// at a path of the host in the current context of another kubeconfig.
func fleetConfig(host *clientcmdapi.Config, name, path string) *clientcmdapi.Config {
	current := host.Contexts[host.CurrentContext]
	cluster := host.Clusters[current.Cluster].DeepCopy()
	cluster.Server = strings.TrimSuffix(cluster.Server, "/") + path
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = cluster
	config.AuthInfos = host.AuthInfos
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: current.AuthInfo, Namespace: current.Namespace}
	config.CurrentContext = name
	return config
}
