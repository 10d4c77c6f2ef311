package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"svc.dev/svc/internal/reference"
	"svc.dev/svc/internal/suggest"
)

// run is svc: it executes the command line args and returns the exit code. An
// error is one line on errOut that names the flag at fault and the remedy.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := untilSignal(context.Background(), errOut)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if code := exitCode(0); errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(errOut, "%s: %s\n", cmd.CommandPath(), oneLine(err))
	if code, err := strconv.Atoi(cmd.Annotations[errorCode]); err == nil {
		return code
	}
	return 1
}

// errorCode is the annotation of a command with its exit code in case of an error; 1
// without it.
const errorCode = "svc.dev/error-code"

// exitCode is a result of a command, which it has printed itself.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "svc",
		Short: "A cluster control plane that speaks the Kubernetes API",
		Long: `svc is a cluster control plane: an API server that speaks the Kubernetes API,
on top of etcd, and the controllers that make its objects true. "svc up" runs all
of it on this machine.`,
		SilenceErrors: true, // run prints them, as one line
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,

		Version: currentVersions().line(),

		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{explainFlag(cmd, err), cmd}
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.AddCommand(newUp(), newDown(), newStatus(), newReleases(), newConvert(), newAPIServer(), newControllerManager(), newNode(), newToken(), newUser(), newStorage(), newKubeconfig(), newUnregister(), newImage(), newKubectl(), newVersion(), newCompletion(), newReference())
	return root
}

// newHelp returns cobra's command of this name, except that an unknown command is an
// error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Explain a command",
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil {
				return usageError{err, help.Root()}
			}
			if !cmd.DisableFlagParsing { // kubectl explains its own
				if err := noCommand(cmd, rest); err != nil {
					return err
				}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// usageError is a mistake in the command line, which the help of cmd explains.
type usageError struct {
	err error
	cmd *cobra.Command
}

func (e usageError) Error() string {
	return fmt.Sprintf("%v; see '%s --help'", e.err, e.cmd.CommandPath())
}

func (e usageError) Unwrap() error { return e.err }

// noCommand rejects arguments to a command that only has subcommands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		err = fmt.Errorf("unknown command %q: did you mean %q?", args[0], similar[0])
	}
	return usageError{err, cmd}
}

// noArguments rejects arguments to a command that takes flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unexpected argument %q: only flags are taken", args[0]), cmd}
}

// values describes the values of each type of flag.
var values = map[string]string{
	"bool":       "true or false",
	"int":        "a whole number",
	"int32":      "a whole number",
	"uint32":     "a whole number from 0",
	"float32":    "a number",
	"float64":    "a number",
	"Level":      "a whole number from 0",
	"intSlice":   "whole numbers with commas between",
	"int32Slice": "whole numbers with commas between",
	"duration":   "a duration, such as 30s or 5m",
	"quantity":   "an amount, such as 64Ki",
	"ip":         "an IP address",
	"portRange":  "a range of ports, such as 30000-32767",
}

// explainFlag adds to the error about an invalid value of a flag what the flag accepts, and to
// that about an unknown flag the one of cmd that may have been meant.
func explainFlag(cmd *cobra.Command, err error) error {
	if similar := suggest.Flag(err, cmd.Flags()); similar != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, similar)
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := "--" + invalid.GetFlag().Name
	if takes, ok := values[invalid.GetFlag().Value.Type()]; ok {
		return fmt.Errorf("%s: %q is not %s", flag, invalid.GetValue(), takes)
	}
	return fmt.Errorf("%s: %q: %w", flag, invalid.GetValue(), errors.Unwrap(invalid))
}

// addFlags gives cmd the flags of sets, and a help that lists them by set.
func addFlags(cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	cmd.Flags().SetNormalizeFunc(kubernetesNames)
	for _, name := range sets.Order {
		sets.FlagSets[name].VisitAll(func(f *pflag.Flag) { _ = sets.FlagSets[name].SetAnnotation(f.Name, reference.Subject, []string{name}) }) // the flag exists
		cmd.Flags().AddFlagSet(sets.FlagSets[name])
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout()) // 0 does not wrap
	cliflag.SetUsageAndHelpFunc(cmd, sets, width)
}

// kubernetesNames accepts the names that Kubernetes gives to flags.
func kubernetesNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if rest, found := strings.CutPrefix(name, "kubelet-"); found {
		name = "svclet-" + rest
	}
	if name == "kubeconfig" {
		name = "svcconfig"
	}
	return pflag.NormalizedName(name)
}

// joined returns one error with all mistakes in the command line.
func joined(cmd *cobra.Command, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	messages := make([]string, len(errs))
	for i, err := range errs {
		messages[i] = oneLine(err)
	}
	return usageError{errors.New(strings.Join(messages, "; ")), cmd}
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}
