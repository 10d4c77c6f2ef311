// Package reference writes the reference of commands and their flags as Markdown.
package reference

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Subject is the annotation of a flag with the name of its set: the flags of each set
// have a table of their own.
const Subject = "svc.dev/subject"

// Command is the hidden command by which a program writes the reference of its commands, for
// make generate: a title, what introduces them, and each of them.
func Command(title, introduction string) *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Write the reference of the commands as Markdown",
		Args:   cobra.NoArgs,
		Hidden: true,
		Run: func(cmd *cobra.Command, _ []string) {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "# %s\n\n<!-- Generated from the commands' declarations by make generate; do not edit. -->\n\n%s\n", title, introduction)
			for _, c := range cmd.Root().Commands() {
				write(out, c)
			}
		},
	}
}

// write describes a command and those below it, with their flags.
func write(out io.Writer, cmd *cobra.Command) {
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
		if of := f.Annotations[Subject]; !any || len(of) > 0 && of[0] != subject {
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
		write(out, c)
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
