package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newReference writes docs/reference/svc.md, for make generate.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Write the reference of all commands and flags as Markdown",
		Args:   noArguments,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprint(out, "# svc\n\n<!-- Generated from the commands' declarations by make generate; do not edit. -->\n\n"+
				"Every command and flag. Names of Kubernetes' flags that begin with `kubelet-` are accepted for those that begin with `svclet-`, and `--kubeconfig` for `--svcconfig`.\n")
			for _, c := range cmd.Root().Commands() {
				writeReference(out, c)
			}
			return nil
		},
	}
}

// writeReference describes a command and those below it.
func writeReference(out io.Writer, cmd *cobra.Command) {
	if !cmd.IsAvailableCommand() {
		return
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(out, "\n## %s\n\n`%s`\n\n%s\n", cmd.CommandPath(), cmd.UseLine(), text)
	subject, any := "", false
	cmd.Flags().SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if of := f.Annotations[flagSubject]; !any || len(of) > 0 && of[0] != subject {
			if len(of) > 0 {
				subject = of[0]
				fmt.Fprintf(out, "\n### %s flags of %s\n", strings.ToUpper(subject[:1])+subject[1:], cmd.CommandPath())
			}
			fmt.Fprint(out, "\n| flag | default | meaning |\n|---|---|---|\n")
			any = true
		}
		writeFlag(out, f)
	})
	for _, c := range cmd.Commands() {
		writeReference(out, c)
	}
}

func writeFlag(out io.Writer, f *pflag.Flag) {
	kind, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if kind != "" {
		name += " " + kind
	}
	byDefault := ""
	if f.DefValue != "" && f.DefValue != "[]" {
		byDefault = "`" + f.DefValue + "`"
	}
	escape := strings.NewReplacer("|", `\|`, "\n", "<br>", "<", "&lt;", ">", "&gt;")
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, byDefault, escape.Replace(usage))
}
