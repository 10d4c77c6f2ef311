package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/progress"
	"svc.dev/svc/internal/rewrite"
)

func newStorage() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Manage what a cluster has stored",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newStorageRewrite(clock.RealClock{}), newStorageMigrate(clock.RealClock{}))
	return cmd
}

func newStorageRewrite(clock clock.WithTicker) *cobra.Command {
	var resources []string
	cmd := &cobra.Command{
		Use:   "rewrite",
		Short: "Store all objects again, with the present encryption and version",
		Long: `Store all objects again that are stored in another form than the API server stores
them in now: not encrypted, with an earlier key of --encryption-provider-config, or in
an earlier version. Other objects are not written. When it has succeeded on all
objects, an earlier key may be removed. Kinds that are not served now are left out:
serve those that have objects (--runtime-config, --release) before.`,
		Args: noArguments,
	}
	cmd.Flags().StringSliceVar(&resources, "resource", nil, "Resources to store again, as secrets or roles.rbac.authorization.k8s.io. The default is all.")
	connection := connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rewriter, err := newRewriter(connection)
		if err != nil {
			return err
		}
		_, err = rewriteAll(cmd.Context(), cmd, clock, rewriter, resources)
		return err
	}
	return cmd
}

// newRewriter returns a rewriter for the API server that the flags name.
func newRewriter(connection *administrator) (*rewrite.Rewriter, error) {
	config, err := connection.config()
	if err != nil {
		return nil, err
	}
	rewriter, err := rewrite.New(config)
	if err != nil {
		return nil, fmt.Errorf("--svcconfig: %w", err)
	}
	return rewriter, nil
}

// rewriteAll prints a line for each resource with objects, and returns the resources of
// which all have been rewritten. It goes on after an error.
func rewriteAll(ctx context.Context, cmd *cobra.Command, clock clock.WithTicker, rewriter *rewrite.Rewriter, names []string) ([]schema.GroupVersionResource, error) {
	resources, err := rewriter.Resources(ctx, names)
	if err != nil {
		return nil, err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tOBJECTS\tREWRITTEN")
	var errs []error
	var done []schema.GroupVersionResource
	for _, resource := range resources {
		what := fmt.Sprintf("%s: rewriting %s", cmd.CommandPath(), resource.GroupResource())
		err := progress.While(cmd.ErrOrStderr(), clock, what, func() error {
			result, err := rewriter.Rewrite(ctx, resource)
			if result.Objects > 0 {
				fmt.Fprintf(table, "%s\t%d\t%d\n", result.Resource, result.Objects, result.Rewritten)
			}
			return err
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, resource)
	}
	return done, errors.Join(errors.Join(errs...), table.Flush())
}
