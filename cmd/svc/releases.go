package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"svc.dev/svc/internal/releases"
)

// servedKind is how `svc releases -o json` prints a kind.
type servedKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Stability  string `json:"stability"`
	// OnByDefault is false if --runtime-config has to name the version.
	OnByDefault bool `json:"onByDefault"`
	// Since and Until are the first and the last release that serve it.
	Since       releases.Release `json:"since"`
	Until       releases.Release `json:"until,omitempty"`
	Deprecated  releases.Release `json:"deprecated,omitempty"`
	Removed     releases.Release `json:"removed,omitempty"`
	Replacement string           `json:"replacement,omitempty"`
}

// releaseChanges is what `svc releases --diff -o json` prints, and a release without it.
type releaseChanges struct {
	Release       releases.Release `json:"release"`
	From          releases.Release `json:"from,omitempty"`
	Serves        int              `json:"serves"`
	Added         []servedKind     `json:"added"`
	Deprecated    []servedKind     `json:"deprecated"`
	Removed       []servedKind     `json:"removed"`
	AddedFields   []string         `json:"addedFields"`
	RemovedFields []string         `json:"removedFields"`
}

func newReleases() *cobra.Command {
	var output, diff string
	cmd := &cobra.Command{
		Use:   "releases [RELEASE]",
		Short: "List what each release of Kubernetes serves, adds, deprecates and removes",
		Long: `List what the releases of Kubernetes from 1.16 to 1.37 add, deprecate and remove, with
RELEASE the kinds and versions that it serves, and with --diff everything that differs
between two releases, fields of objects and values of enumerations among it. No cluster
is needed. "svc convert --check" checks manifests against a release.`,
		Example: `  svc releases
  svc releases 1.25
  svc releases --diff 1.24..1.29`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("unexpected argument %q: one release is taken", args[1]), cmd}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Print as json.")
	cmd.Flags().StringVar(&diff, "diff", "", "Print what differs between two releases, such as 1.24..1.29.")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if output != "" && output != "json" {
			return usageError{fmt.Errorf("--output: %q is not json; leave the flag out for text", output), cmd}
		}
		if diff != "" && len(args) > 0 {
			return usageError{fmt.Errorf("unexpected argument %q: --diff names the releases", args[0]), cmd}
		}
		value, print, err := releasesAnswer(args, diff)
		if err != nil {
			return usageError{err, cmd}
		}
		if output == "json" {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(value)
		}
		return print(cmd.OutOrStdout())
	}
	return cmd
}

// releasesAnswer returns what the arguments ask for, for JSON and as a function that
// prints it as text.
func releasesAnswer(args []string, diff string) (value any, print func(io.Writer) error, err error) {
	table, err := releases.Load()
	switch {
	case err != nil:
		return nil, nil, err
	case diff != "":
		from, to, err := releases.ParseRange(diff)
		if err != nil {
			return nil, nil, fmt.Errorf("--diff: %w", err)
		}
		c := table.Changes(from, to)
		return changesOf(table, c), func(out io.Writer) error { return printChanges(out, c) }, nil
	case len(args) > 0:
		r, err := releases.ParseRelease(args[0])
		if err != nil {
			return nil, nil, err
		}
		kinds := table.Served(r)
		return servedKinds(kinds), func(out io.Writer) error { return printServed(out, kinds, r) }, nil
	}
	all := []releaseChanges{}
	for r := releases.Oldest; r <= releases.Newest; r++ {
		c := changesOf(table, table.Changes(max(r-1, releases.Oldest), r))
		if c.Release = r; r == releases.Oldest {
			c.From = 0
		}
		all = append(all, c)
	}
	return all, func(out io.Writer) error { return printReleases(out, table, all) }, nil
}

func changesOf(table *releases.Table, c releases.Changes) releaseChanges {
	return releaseChanges{
		Release: c.To, From: c.From, Serves: len(table.Served(c.To)),
		Added: servedKinds(c.Added), Deprecated: servedKinds(c.Deprecated), Removed: servedKinds(c.Removed),
		AddedFields: append([]string{}, c.AddedFields...), RemovedFields: append([]string{}, c.RemovedFields...),
	}
}

func servedKinds(kinds []*releases.Kind) []servedKind {
	list := []servedKind{}
	for _, k := range kinds {
		s := servedKind{
			APIVersion: k.GroupVersion().String(), Kind: k.Kind, Stability: k.Stability(), OnByDefault: !k.Off,
			Since: k.Served.First, Deprecated: k.Deprecated, Removed: k.Removed, Replacement: replacement(k),
		}
		if k.Served.Last != releases.Newest {
			s.Until = k.Served.Last
		}
		list = append(list, s)
	}
	return list
}

// replacement names what to use instead of a kind, empty if there is nothing.
func replacement(k *releases.Kind) string {
	if k.Replacement.Empty() {
		return ""
	}
	return k.Replacement.GroupVersion().String() + " " + k.Replacement.Kind
}

// printReleases prints a line for each release.
func printReleases(out io.Writer, table *releases.Table, all []releaseChanges) error {
	lines := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(lines, "RELEASE\tSERVES\tADDS\tDEPRECATES\tREMOVES\tVERSIONS REMOVED, OR KINDS OF THEM")
	for _, c := range all {
		fmt.Fprintf(lines, "%v\t%d\t%d\t%d\t%d\t%s\n", c.Release, c.Serves, len(c.Added), len(c.Deprecated), len(c.Removed), orNone(strings.Join(versionsRemoved(table, c), " ")))
	}
	return lines.Flush()
}

// versionsRemoved returns the versions that a release serves no more, and those of which it
// lacks some kinds, with the kinds.
func versionsRemoved(table *releases.Table, c releaseChanges) []string {
	served := map[string]bool{}
	for _, k := range table.Served(c.Release) {
		served[k.GroupVersion().String()] = true
	}
	var versions []string
	kinds := map[string][]string{}
	for _, k := range c.Removed {
		if kinds[k.APIVersion] == nil {
			versions = append(versions, k.APIVersion)
		}
		kinds[k.APIVersion] = append(kinds[k.APIVersion], k.Kind)
	}
	for i, version := range versions {
		if served[version] {
			versions[i] += " (" + strings.Join(kinds[version], ", ") + ")"
		}
	}
	return versions
}

// printServed prints a line for each kind that release r serves.
func printServed(out io.Writer, kinds []*releases.Kind, r releases.Release) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "APIVERSION\tKIND\tSTABILITY\tDEFAULT\tSINCE\tDEPRECATED\tREMOVED\tREPLACEMENT")
	for _, k := range kinds {
		deprecated, instead, byDefault := releases.Release(0), "", "on"
		if k.DeprecatedAt(r) {
			deprecated, instead = k.Deprecated, replacement(k)
		}
		if k.Off {
			byDefault = "off"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%v\t%s\t%s\t%s\n", k.GroupVersion(), k.Kind, k.Stability(), byDefault, k.Served.First, orNever(deprecated), orNever(k.Removed), orNone(instead))
	}
	return table.Flush()
}

// printChanges prints what differs between two releases.
func printChanges(out io.Writer, c releases.Changes) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CHANGE\tAPIVERSION\tKIND\tRELEASE\tREPLACEMENT")
	for _, k := range c.Removed {
		fmt.Fprintf(table, "removed\t%s\t%s\t%v\t%s\n", k.GroupVersion(), k.Kind, k.Served.Last+1, orNone(replacement(k)))
	}
	for _, k := range c.Deprecated {
		fmt.Fprintf(table, "deprecated\t%s\t%s\t%v\t%s\n", k.GroupVersion(), k.Kind, k.Deprecated, orNone(replacement(k)))
	}
	for _, k := range c.Added {
		change := "added"
		if k.Off {
			change = "added (off)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%v\t-\n", change, k.GroupVersion(), k.Kind, k.Served.First)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, fields := range []struct {
		title string
		names []string
	}{{"FIELDS REMOVED", c.RemovedFields}, {"FIELDS ADDED", c.AddedFields}} {
		if len(fields.names) > 0 {
			fmt.Fprintf(out, "\n%s\n%s\n", fields.title, strings.Join(fields.names, "\n"))
		}
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orNever(r releases.Release) string {
	if r == 0 {
		return "-"
	}
	return r.String()
}
