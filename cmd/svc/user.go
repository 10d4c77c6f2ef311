package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/progress"
	"svc.dev/svc/internal/usercert"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Make users of a cluster",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newUserCreate(clock.RealClock{}))
	return cmd
}

// signingPatience is how long svc user create waits for the certificate.
const signingPatience = 30 * time.Second

func newUserCreate(clock clock.WithTicker) *cobra.Command {
	var user usercert.User
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a client certificate of a user and print a kubeconfig with it",
		Long: `Make a client certificate of a user and print a kubeconfig with it. The API server
keeps no user: the certificate, until it expires, is all there is. Roles and bindings
grant the user and the groups what they may do.`,
	}
	cmd.Flags().StringSliceVar(&user.Groups, "group", nil, "Groups of the user. May be given several times.")
	cmd.Flags().DurationVar(&user.Lifetime, "expires", 24*time.Hour,
		"How long the certificate is valid, at least 10m. It cannot be revoked. The signer may shorten it (--cluster-signing-duration).")
	connection := connectionFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		var errs []error
		switch {
		case len(args) != 1:
			errs = append(errs, errors.New("give one name"))
		case args[0] == "":
			errs = append(errs, errors.New("the name is empty"))
		default:
			user.Name = args[0]
		}
		if user.Lifetime < usercert.MinLifetime || user.Lifetime/time.Second > 1<<31-1 {
			errs = append(errs, fmt.Errorf("--expires: %s must be at least %s, and less than 68 years", user.Lifetime, usercert.MinLifetime))
		}
		for _, group := range user.Groups {
			if group == "" {
				errs = append(errs, errors.New("--group: must not be empty"))
			}
		}
		return joined(cmd, errs)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, config, err := connection.client()
		if err != nil {
			return err
		}
		// Before the certificate exists, so that an error leaves none.
		if _, err := kubeconfigOf(config, user.Name, &clientcmdapi.AuthInfo{}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), signingPatience)
		defer cancel()
		var made usercert.Credentials
		err = progress.While(cmd.ErrOrStderr(), clock, cmd.CommandPath()+": still waiting for the certificate", func() (err error) {
			made, err = usercert.Issue(ctx, client, user)
			return err
		})
		if err != nil {
			return err
		}
		printed, err := kubeconfigOf(config, user.Name, &clientcmdapi.AuthInfo{ClientCertificateData: made.Certificate, ClientKeyData: made.Key})
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(printed)
		return err
	}
	return cmd
}
