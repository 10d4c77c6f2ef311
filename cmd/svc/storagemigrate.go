package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/losses"
	"svc.dev/svc/internal/progress"
	"svc.dev/svc/internal/rewrite"
)

// migrateLosses is the exit code of svc storage migrate if a release would lose something.
const migrateLosses = 2

func newStorageMigrate(clock clock.WithTicker) *cobra.Command {
	var to string
	var runtimeConfig map[string]string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Store all objects in their storage versions, and list what an older release would lose",
		Long: `Store all objects again that are stored in an earlier version than the one that the API
server stores them in now. When all objects of a custom resource have been stored, the
earlier versions are removed from the status of its definition, so that they may be
removed from the definition. It may be stopped and started again at any time.

With --release it also lists what that release would lose: objects of kinds that it does
not serve, and fields that it does not have. "svc up --release" refuses the data until
these are deleted or changed, unless it goes back by one release only.

The exit code is 0 if all is done and nothing would be lost, 2 if something would be
lost, and 1 if the command failed.`,
		Example: `  svc storage migrate
  svc storage migrate --release=1.25`,
		Args: noArguments,
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "release", "", "Release of Kubernetes that is to serve the objects, from 1.16 to 1.37, or latest. The default is that of the API server: nothing is lost then.")
	flags.StringToStringVar(&runtimeConfig, "runtime-config", nil, "With --release: the --runtime-config with which that release is to be started.")
	connection := connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(runtimeConfig) > 0 && to == "" {
			return usageError{errors.New("--runtime-config: needs --release"), cmd}
		}
		var finder *migrationFinder
		if to != "" {
			var err error
			if finder, err = newMigrationFinder(to, runtimeConfig); err != nil {
				return usageError{err, cmd}
			}
		}
		rewriter, err := newRewriter(connection)
		if err != nil {
			return err
		}
		return migrate(cmd, clock, rewriter, finder)
	}
	return cmd
}

// migrationFinder finds what a release would lose.
type migrationFinder struct {
	release release.Release
	find    func(r *rewrite.Rewriter, cmd *cobra.Command) ([]rewrite.Loss, error)
}

func newMigrationFinder(to string, runtimeConfig map[string]string) (*migrationFinder, error) {
	r, err := release.Parse(to)
	if err != nil {
		return nil, fmt.Errorf("--release: %w", err)
	}
	kinds := apis.Kinds()
	served, err := release.NewServed(r, runtimeConfig, kinds, apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	scheme, err := apis.NewScheme(kinds)
	if err != nil {
		return nil, err
	}
	finder := losses.New(served, scheme)
	return &migrationFinder{release: r, find: func(r *rewrite.Rewriter, cmd *cobra.Command) ([]rewrite.Loss, error) {
		resources, err := r.Resources(cmd.Context(), nil)
		if err != nil {
			return nil, err
		}
		var all []rewrite.Loss
		for _, gvr := range resources {
			found, err := r.Losses(cmd.Context(), gvr, kinds, finder)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}}, nil
}

// migrate rewrites all objects and prints what a release would lose, if there is a finder.
func migrate(cmd *cobra.Command, clock clock.WithTicker, rewriter *rewrite.Rewriter, finder *migrationFinder) error {
	several, err := rewriter.Several(cmd.Context())
	if err != nil {
		return err
	}
	rewritten, err := rewriteAll(cmd.Context(), cmd, clock, rewriter, nil)
	changed, storedErr := rewriter.StoredVersions(cmd.Context(), several, rewritten)
	for _, name := range changed {
		fmt.Fprintf(cmd.OutOrStdout(), "customresourcedefinitions %s: the objects are stored in one version now\n", name)
	}
	if err := errors.Join(err, storedErr); err != nil || finder == nil {
		return err
	}
	var found []rewrite.Loss
	what := fmt.Sprintf("%s: reading what %v would lose", cmd.CommandPath(), finder.release)
	err = progress.While(cmd.ErrOrStderr(), clock, what, func() (err error) {
		found, err = finder.find(rewriter, cmd)
		return err
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "release %v keeps everything\n", finder.release)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "release %v would lose:\n", finder.release)
	for _, loss := range found {
		fmt.Fprintf(cmd.OutOrStdout(), "  %v\n", loss)
	}
	return exitCode(migrateLosses)
}
