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
	var force bool
	cmd := &cobra.Command{
		Use:   "unregister --group-domain DOMAIN",
		Short: "Remove a fleet that is gone from its host cluster",
		Long: `Remove the APIServices of a group domain from the host cluster that --svcconfig or
KUBECONFIG names. Do this when the API servers of the domain are gone for good: until
then the host cannot delete namespaces, since it does not know what the domain's groups
have in them. Nothing else is removed, and no data is lost: the same manifests register
the groups again.

While the API servers answer, it removes nothing without --force.`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&domain, "group-domain", "", "The domain of the API groups, as the API servers had it: svc.dev, for example.")
	cmd.Flags().BoolVar(&force, "force", false, "Remove the APIServices also while the API servers of the domain answer.")
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
			return connection.about(err)
		}
		services, err := registration.Registered(cmd.Context(), host, domain)
		if err != nil {
			return connection.about(fmt.Errorf("the host %s: %w", config.Host, err))
		}
		if answering := registration.Answering(cmd.Context(), host, services); len(answering) > 0 && !force {
			return fmt.Errorf("the API servers of %s answer (%s): without their groups %s lets namespaces end in which the fleet has objects, and no client reaches them; "+
				"to remove the groups all the same, give --force", domain, some(answering), config.Host)
		}
		removed, err := registration.Remove(cmd.Context(), host, services)
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

// some returns the first of several names, and how many there are.
func some(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s and %d more APIServices", names[0], len(names)-1)
}
