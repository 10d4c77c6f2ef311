package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"svc.dev/svc/internal/datadir"
)

// dataDirFlag adds the flag --data-dir of commands about an svc up of this machine,
// or about its node, and returns what decides which one is meant.
func dataDirFlag(flags *pflag.FlagSet) func(*cobra.Command) (datadir.Choice, error) {
	dir := flags.String("data-dir", "", "Data directory of the svc up that is meant. The default is the one of KUBECONFIG or, without it, that of this user's svc up, as for svc kubectl.")
	return func(cmd *cobra.Command) (datadir.Choice, error) {
		choice, err := datadir.CurrentUser().Choose(*dir)
		if err == nil && !choice.Obvious {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: using %s\n", cmd.CommandPath(), choice)
		}
		return choice, err
	}
}

// namedDataDirFlag is dataDirFlag for commands that end or remove something: a data
// directory that neither the user nor the default has named is an error.
func namedDataDirFlag(flags *pflag.FlagSet) func(*cobra.Command) (datadir.Choice, error) {
	dir := flags.String("data-dir", "", "Data directory of the svc up that is meant. The default is the one of KUBECONFIG or, without it, this user's default; another one has to be named.")
	return func(*cobra.Command) (datadir.Choice, error) {
		choice, err := datadir.CurrentUser().Choose(*dir)
		if err == nil {
			err = named(choice)
		}
		return choice, err
	}
}

// sudoHint is [datadir.User.SudoHint] for the user of this process.
func sudoHint(dir datadir.Dir) string {
	return datadir.CurrentUser().SudoHint(dir, datadir.RootDefault)
}

// named returns an error for a choice that neither the user nor the default has made.
func named(choice datadir.Choice) error {
	if choice.Obvious {
		return nil
	}
	return fmt.Errorf("several directories could be meant: name the one %s with --data-dir=%s", choice.By, choice.Dir)
}
