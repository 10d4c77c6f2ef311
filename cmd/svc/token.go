package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/fleetaddress"
	"svc.dev/svc/internal/jointoken"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Manage the tokens by which nodes join a cluster",
		Long: `Manage bootstrap tokens: short-lived tokens by which a new node authenticates and
asks for its certificate. Each is a secret in the namespace kube-system.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2,
	}
	cmd.AddCommand(newTokenCreate(clock.RealClock{}), newTokenList(clock.RealClock{}), newTokenDelete())
	return cmd
}

// defaultTTL is how long a token is valid, as in kubeadm.
const defaultTTL = 24 * time.Hour

func newTokenCreate(clock clock.PassiveClock) *cobra.Command {
	var token jointoken.Token
	var ttl time.Duration
	var kubeconfig bool
	var join joinCommand
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a token and print it",
		Long: `Create a token and print it. Without TOKEN, which has the form ID.KEY, it is random.

The command by which a machine joins the cluster with the token is printed to standard
error, or with --print-join-command to standard output, instead of the token. It publishes the
config map cluster-info in kube-public, by which machines verify the cluster. A machine also joins
with the output of --print-kubeconfig as its bootstrap kubeconfig.`,
	}
	flags := cmd.Flags()
	flags.DurationVar(&ttl, "ttl", defaultTTL, "How long the token is valid, at least 1s. 0 is without end.")
	flags.StringSliceVar(&token.Usages, "usages", jointoken.Usages(), "What the token is for: authentication, and signing the config map cluster-info.")
	flags.StringSliceVar(&token.Groups, "groups", nil,
		"Groups of the user that authenticates with the token, besides system:bootstrappers. The default, with the usage authentication, is "+jointoken.DefaultGroup+
			", and with --group-domain "+fleetaddress.BootstrapGroup+".")
	flags.StringVar(&token.Description, "description", "", "What the token is for, in words.")
	flags.BoolVar(&kubeconfig, "print-kubeconfig", false, "Print a kubeconfig with the token rather than the token.")
	flags.BoolVar(&join.print, "print-join-command", false, "Print only the command by which a machine joins the cluster, to standard output.")
	flags.StringVar(&join.domain, "group-domain", "", "The group domain of the fleet behind the cluster that the machine joins, rather than the cluster itself.")
	flags.StringVar(&join.server, "server", "", "The API server's URL for the machine. The default is the address that the API server advertises.")
	connection := connectionFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) > 1 {
			return usageError{errors.New("give at most one token"), cmd}
		}
		if !flags.Changed("groups") && strings.Contains(strings.Join(token.Usages, ","), "authentication") {
			token.Groups = []string{jointoken.DefaultGroup}
			if join.domain != "" {
				token.Groups = []string{fleetaddress.BootstrapGroup}
			}
		}
		errs := append(tokenErrors(token, ttl, kubeconfig), join.errors(token, kubeconfig)...)
		if len(args) == 1 {
			if token.ID, token.Key, err = jointoken.Parse(args[0]); err != nil {
				errs = append(errs, err)
			}
		}
		return joined(cmd, errs)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if token.ID == "" {
			if token.ID, token.Key, err = jointoken.Generate(); err != nil {
				return err
			}
		}
		if ttl > 0 {
			token.Expires = clock.Now().Add(ttl)
		}
		return createToken(cmd, connection, token, kubeconfig, join)
	}
	return cmd
}

// tokenErrors returns an error for each flag of svc token create that is invalid.
func tokenErrors(token jointoken.Token, ttl time.Duration, kubeconfig bool) []error {
	var errs []error
	if ttl < 0 || ttl > 0 && ttl < time.Second {
		errs = append(errs, fmt.Errorf("--ttl: %s must be at least 1s, or 0, which is without end", ttl))
	}
	usages, groups := token.Validate()
	for _, err := range usages {
		errs = append(errs, fmt.Errorf("--usages: %w", err))
	}
	for _, err := range groups {
		errs = append(errs, fmt.Errorf("--groups: %w", err))
	}
	if len(token.Usages) == 0 {
		errs = append(errs, fmt.Errorf("--usages: name at least one of %s", strings.Join(jointoken.Usages(), ", ")))
	}
	if kubeconfig && !strings.Contains(strings.Join(token.Usages, ","), "authentication") {
		errs = append(errs, errors.New("--print-kubeconfig: the token does not authenticate; add authentication to --usages"))
	}
	return errs
}

func createToken(cmd *cobra.Command, connection *administrator, token jointoken.Token, kubeconfig bool, join joinCommand) error {
	ctx := cmd.Context()
	client, config, err := connection.client()
	if err != nil {
		return err
	}
	printed, note := []byte(token.String()+"\n"), ""
	// Before the token exists, so that an error leaves none.
	switch {
	case kubeconfig:
		printed, err = kubeconfigOf(config, "node-bootstrap", &clientcmdapi.AuthInfo{Token: token.String()})
	case join.print:
		printed, err = join.prepare(ctx, client, config, token)
	case joins(token):
		note, err = join.note(ctx, client, config, token)
	}
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, token.Secret(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a token with the ID %s exists already: delete it first, or choose another", token.ID)
	}
	if err != nil {
		return fmt.Errorf("create the token's secret: %w", err)
	}
	if _, err := cmd.OutOrStdout().Write(printed); err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.ErrOrStderr(), note)
	return err
}

func newTokenList(clock clock.PassiveClock) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		Args:  noArguments,
	}
	connection := connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, _, err := connection.client()
		if err != nil {
			return err
		}
		secrets, err := client.CoreV1().Secrets(metav1.NamespaceSystem).List(cmd.Context(), metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("type", string(api.SecretTypeBootstrapToken)).String(),
		})
		if err != nil {
			return fmt.Errorf("list the tokens' secrets: %w", err)
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
		for i := range secrets.Items {
			token, err := jointoken.FromSecret(&secrets.Items[i])
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", cmd.CommandPath(), err)
				continue
			}
			fmt.Fprintln(table, strings.Join(tokenRow(token, clock.Now()), "\t"))
		}
		return table.Flush()
	}
	return cmd
}

// tokenRow returns the columns of a token, with kubeadm's words.
func tokenRow(token jointoken.Token, now time.Time) []string {
	ttl, expires := "<forever>", "<never>"
	if !token.Expires.IsZero() {
		ttl, expires = "<invalid>", token.Expires.Format(time.RFC3339)
		if left := token.Expires.Sub(now); left > 0 {
			ttl = duration.ShortHumanDuration(left)
		}
	}
	row := []string{token.String(), ttl, expires, strings.Join(token.Usages, ","), token.Description, strings.Join(token.Groups, ",")}
	for i, column := range row {
		if column == "" {
			row[i] = "<none>"
		}
	}
	return row
}

func newTokenDelete() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens, named by their IDs or whole",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name the tokens to delete"), cmd}
			}
			for _, arg := range args {
				name, err := jointoken.SecretName(arg)
				if err != nil {
					return usageError{err, cmd}
				}
				names = append(names, name)
			}
			return nil
		},
	}
	connection := connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, _, err := connection.client()
		if err != nil {
			return err
		}
		for _, name := range names {
			id := strings.TrimPrefix(name, api.BootstrapTokenSecretPrefix)
			err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(cmd.Context(), name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("there is no token with the ID %s", id)
			}
			if err != nil {
				return fmt.Errorf("delete the token %s: %w", id, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "bootstrap token %q deleted\n", id)
		}
		return nil
	}
	return cmd
}
