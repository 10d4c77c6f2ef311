package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/term"

	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/convert/inputs"
	"svc.dev/svc/internal/convert/live"
	reports "svc.dev/svc/internal/convert/report"
	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// convertFailed is the exit code of svc convert if it could not do its work; 1 and 2 are
// results.
const convertFailed = 3

// convertConfig is what the flags of svc convert say.
type convertConfig struct {
	names            []string
	release, version string
	output, report   string
	check, write     bool
	cluster          bool
	connection       *administrator
}

func newConvert() *cobra.Command {
	c := &convertConfig{}
	cmd := &cobra.Command{
		Use:   "convert [FILE|DIR|-]...",
		Short: "Convert manifests to a release of Kubernetes, or check them",
		Long: `Convert the manifests of files, of directories or of the standard input (-) to what a
release of Kubernetes serves: removed and deprecated versions of kinds become those that
replace them, and what the new version has in another place or by another default is
written so that behaviour stays. Comments, order and formatting are kept. The result is
printed or, with --write, replaces the files; what has changed and what a person has to
decide is printed as well, and with --report written to a file for programs. Nothing of a
file with an invalid document is converted; its other documents are checked.

With --check nothing is converted: it lists what the release would refuse (removed
versions, fields and values that it does not have) and what it would warn of. With
--cluster as well it reads the objects of a cluster, and changes nothing.

The exit code is 0 if there is nothing to do, 1 if something was converted or, with
--check, has to be, 2 if decisions remain, and 3 if the command failed.`,
		Example: `  svc convert --check --release=1.25 manifests/
  helm template chart | svc convert --check --release=1.25 -o sarif -
  svc convert --release=1.25 --write --report=changes.json manifests/
  svc convert --check --release=1.29 --cluster --svcconfig=admin.conf`,
		Annotations: map[string]string{errorCode: fmt.Sprint(convertFailed)},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&c.names, "filename", "f", nil, "File or directory of manifests, or - for the standard input; may be repeated. The same as an argument.")
	flags.BoolVar(&c.check, "check", false, "Only list what the release would refuse or warn of.")
	flags.StringVar(&c.release, "release", release.Default.String(), "Release of Kubernetes that the manifests are for, from 1.16 to 1.37, or latest.")
	flags.StringVar(&c.version, "output-version", "", "Version to convert the objects of its group to, as apps/v1. The default is the one that the release wants.")
	flags.StringVarP(&c.output, "output", "o", "", "Print the objects as yaml or json instead of in the form that they have. With --check: print the report as json, sarif or junit instead of text.")
	flags.BoolVar(&c.write, "write", false, "Write the changed files, instead of printing them.")
	flags.StringVar(&c.report, "report", "", "Write to this file, as JSON, what has changed and what a person has to decide of each object. With --check: use --output=json.")
	flags.BoolVar(&c.cluster, "cluster", false, "With --check: check the objects of a cluster, by the manifests that were applied, by the versions that clients have written, and by their fields.")
	c.connection = connectionFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.names = append(c.names, args...)
		return c.run(cmd)
	}
	return cmd
}

// validate returns a converter, or an error that names the flag at fault.
func (c *convertConfig) validate() (*convert.Converter, error) {
	outputs := []string{"", "yaml", "json"}
	if c.check {
		outputs = []string{"", "json", "sarif", "junit"}
	}
	switch {
	case !slices.Contains(outputs, c.output):
		return nil, fmt.Errorf("--output: %q is unknown: must be %s, or left out", c.output, strings.Join(outputs[1:], " or "))
	case c.cluster && !c.check:
		return nil, errors.New("--cluster: only --check reads a cluster; svc convert changes files")
	case c.cluster && len(c.names) > 0:
		return nil, errors.New("--cluster: cannot be used together with files")
	case !c.cluster && len(c.names) == 0:
		return nil, errors.New("no manifests: name files or directories, or - for the standard input")
	case c.write && c.check:
		return nil, errors.New("--write: cannot be used together with --check, which changes nothing")
	case c.report != "" && c.check:
		return nil, errors.New("--report: cannot be used together with --check, whose report --output=json prints")
	case c.write && c.output != "":
		return nil, errors.New("--write: cannot be used together with --output: files keep their form")
	case c.write && slices.Contains(c.names, inputs.Stdin):
		return nil, errors.New("--write: the standard input cannot be written")
	}
	r, err := releases.ParseRelease(c.release)
	if err != nil {
		return nil, fmt.Errorf("--release: %w", err)
	}
	gv, err := schema.ParseGroupVersion(c.version)
	if err != nil {
		return nil, fmt.Errorf("--output-version: %w", err)
	}
	table, err := releases.Load()
	if err != nil {
		return nil, err
	}
	if !gv.Empty() && !slices.ContainsFunc(table.Served(r), func(k *releases.Kind) bool { return k.GroupVersion() == gv }) {
		return nil, fmt.Errorf("--output-version: %v does not serve %s", r, gv)
	}
	return &convert.Converter{Table: table, Release: r, Version: gv, OnlyRemoved: c.check}, nil
}

func (c *convertConfig) run(cmd *cobra.Command) error {
	converter, err := c.validate()
	if err != nil {
		return usageError{err, cmd}
	}
	if c.cluster {
		return c.runCluster(cmd, converter)
	}
	result, err := inputs.Convert(cmd.Context(), converter, c.names, cmd.InOrStdin())
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	text, terminal := io.Writer(out), cmd.OutOrStdout()
	if !c.check && !c.write {
		text, terminal = cmd.ErrOrStderr(), cmd.ErrOrStderr()
		err = c.printObjects(out, result.Files)
	} else if c.write {
		result.Write()
	}
	for _, err := range result.Errors {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.CommandPath(), oneLine(err))
	}
	rep := reports.New(converter.Release, result.Outcomes)
	if c.report != "" {
		err = errors.Join(err, writeReport(c.report, rep))
	}
	if c.check {
		err = c.print(out, terminal, rep)
	} else if err == nil {
		rep.Text(text, true, colored(terminal))
	}
	switch err = errors.Join(err, out.Flush()); {
	case err != nil:
		return err
	case len(result.Errors) > 0:
		return exitCode(convertFailed)
	}
	return outcome(rep)
}

// writeReport writes a report to a file as JSON.
func writeReport(file string, rep *reports.Report) error {
	var text bytes.Buffer
	if err := rep.JSON(&text); err != nil {
		return err
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// outcome returns the result of a report.
func outcome(rep *reports.Report) error {
	if rep.Code() == 0 {
		return nil
	}
	return exitCode(rep.Code())
}

// runCluster checks the objects of a cluster.
func (c *convertConfig) runCluster(cmd *cobra.Command, converter *convert.Converter) error {
	config, err := c.connection.config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.QPS = -1 // lists of this command are few, and the server limits them
	outcomes, warnings, err := live.Check(cmd.Context(), config, converter)
	if err != nil {
		return err
	}
	rep := reports.New(converter.Release, outcomes)
	rep.Warnings = warnings
	out := bufio.NewWriter(cmd.OutOrStdout())
	if err := errors.Join(c.print(out, cmd.OutOrStdout(), rep), out.Flush()); err != nil {
		return err
	}
	if len(warnings) > 0 {
		return fmt.Errorf("not everything was checked: %s", strings.Join(warnings, "; "))
	}
	return outcome(rep)
}

// print prints the report of a check, in colors if the terminal that it ends up at has them.
func (c *convertConfig) print(out, terminal io.Writer, rep *reports.Report) error {
	switch c.output {
	case "json":
		return rep.JSON(out)
	case "sarif":
		return rep.SARIF(out, release.SVCVersion())
	case "junit":
		return rep.JUnit(out)
	}
	rep.Text(out, false, colored(terminal))
	return nil
}

// printObjects prints the converted files as one stream: as they are, all as YAML, or as
// JSON, several objects as a List.
func (c *convertConfig) printObjects(out io.Writer, files []inputs.File) error {
	var objects []*yaml.Node
	for i, f := range files {
		if c.output == "" {
			text := f.After
			if i > 0 {
				text = strings.TrimPrefix(text, "\ufeff") // the byte order mark is for the beginning only
				if !strings.HasPrefix(text, "---") {
					fmt.Fprintln(out, "---")
				}
			}
			fmt.Fprint(out, text)
			if len(files) > 1 && !strings.HasSuffix(text, "\n") {
				fmt.Fprintln(out)
			}
			continue
		}
		documents, err := manifest.Parse(f.Name, f.After)
		if err != nil {
			return err
		}
		for _, d := range documents {
			objects = append(objects, d.Objects()...)
		}
	}
	if c.output == "json" && len(objects) > 1 {
		objects = []*yaml.Node{manifest.Map("apiVersion", manifest.String("v1"), "kind", manifest.String("List"), "items", manifest.List(objects...))}
	}
	for i, obj := range objects {
		encode := manifest.EncodeYAML
		if c.output == "json" {
			encode = func(n *yaml.Node) (string, error) { return manifest.EncodeJSON(n, 2) }
		} else if i > 0 {
			fmt.Fprintln(out, "---")
		}
		text, err := encode(obj)
		if err != nil {
			return err
		}
		fmt.Fprint(out, text)
	}
	return nil
}

// colored reports whether out is a terminal whose user has not turned colors off.
func colored(out io.Writer) bool {
	_, _, err := term.TerminalSize(out)
	return err == nil && os.Getenv("NO_COLOR") == ""
}
