package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/apiserver/registration"
)

func newUnregister() *cobra.Command {
	var domain string
	cmd := &cobra.Command{
		Use:   "unregister --group-domain DOMAIN",
		Short: "Remove a fleet that is gone from its host cluster",
		Long: `Remove the APIServices of a group domain from the host cluster that --svcconfig or
KUBECONFIG names. Do this when the API servers of the domain are gone for good: until
then the host cannot delete namespaces, since it does not know what the domain's groups
have in them. Nothing else is removed, and no data is lost: the same manifests register
the groups again.`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&domain, "group-domain", "", "The domain of the API groups, as the API servers had it: svc.dev, for example.")
	connection := connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if domain == "" {
			return usageError{errors.New("--group-domain: name the domain of the groups to remove"), cmd}
		}
		if err := groupdomain.Validate(domain); err != nil {
			return usageError{fmt.Errorf("--group-domain: %w", err), cmd}
		}
		config, err := connection.config()
		if err != nil {
			return err
		}
		host, err := aggregator.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("--svcconfig: %w", err)
		}
		removed, err := registration.Remove(cmd.Context(), host, domain)
		for _, name := range removed {
			fmt.Fprintf(cmd.OutOrStdout(), "apiservice %s removed\n", name)
		}
		if err == nil && len(removed) == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%s has no APIServices of %s\n", config.Host, domain)
		}
		return err
	}
	return cmd
}
