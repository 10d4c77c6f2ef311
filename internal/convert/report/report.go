// Package report owns how the outcomes of a conversion are printed: as text, JSON, SARIF
// and JUnit.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"svc.dev/svc/internal/convert"
	"svc.dev/svc/internal/releases"
)

// Report is what is known of all objects.
type Report struct {
	Release  releases.Release  `json:"release"`
	Summary  Summary           `json:"summary"`
	Objects  []convert.Outcome `json:"objects"`
	Warnings []string          `json:"warnings,omitempty"` // about the check itself
}

// Summary counts objects.
type Summary struct {
	Checked    int `json:"checked"`
	NotChecked int `json:"notChecked"`
	// Convert are objects that svc can convert, Decide those that need a decision, and
	// Warn others with warnings.
	Convert int `json:"convert"`
	Decide  int `json:"decide"`
	Warn    int `json:"warn"`
}

// New returns a report.
func New(release releases.Release, outcomes []convert.Outcome) *Report {
	r := &Report{Release: release, Objects: append([]convert.Outcome{}, outcomes...)}
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.NotChecked != "" {
			r.Summary.NotChecked++
			continue
		}
		r.Summary.Checked++
		switch {
		case o.Code() == 2:
			r.Summary.Decide++
		case o.Code() == 1:
			r.Summary.Convert++
		case len(o.Findings) > 0:
			r.Summary.Warn++
		}
	}
	return r
}

// Code is the exit code: 0, 1 if something has to be or has been converted, 2 if a
// decision remains.
func (r *Report) Code() int {
	switch {
	case r.Summary.Decide > 0:
		return 2
	case r.Summary.Convert > 0:
		return 1
	}
	return 0
}

// JSON prints the report as JSON.
func (r *Report) JSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// place returns the file and the line, if there is one.
func place(o *convert.Outcome, line int) string {
	if line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, line)
}

// name returns how an object is called in a line of text.
func name(o *convert.Outcome) string {
	if o.Kind == "" {
		return ""
	}
	text := o.Kind
	if o.Name != "" {
		text += " " + strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	}
	return text + ": "
}

// Text prints a line for each finding, with changes also for each of these, and a
// summary. Colors are those of a terminal.
func (r *Report) Text(out io.Writer, changes, colors bool) {
	paint := func(code, text string) string {
		if !colors {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	for i := range r.Objects {
		o := &r.Objects[i]
		if changes {
			for _, c := range o.Changes {
				verb := paint("32", "changed")
				if o.Kept {
					verb = paint("31", "not changed")
				}
				fmt.Fprintf(out, "%s: %s: %s%s: %s\n", place(o, c.Line), verb, name(o), c.Path, c.Message)
			}
		}
		for _, f := range o.Findings {
			level := string(f.Level)
			switch {
			case f.Action == convert.Rewrite && changes:
				continue // it is among the changes
			case f.Action == convert.Rewrite:
				level = paint("31", level)
			case f.Action == convert.Decide:
				level = paint("31;1", "decide")
			default:
				level = paint("33", level)
			}
			fmt.Fprintf(out, "%s: %s: %s%s: %s\n", place(o, f.Line), level, name(o), f.Path, f.Message)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(out, "%s: %s\n", paint("33", "warning"), w)
	}
	fmt.Fprintln(out, r.line(changes))
}

// line is the summary.
func (r *Report) line(changes bool) string {
	s := r.Summary
	verb, convert, kept := "to convert", s.Convert, 0
	if changes {
		verb = "converted"
		for i := range r.Objects {
			if o := &r.Objects[i]; o.Kept && o.Code() == 1 {
				kept++
			}
		}
	}
	line := fmt.Sprintf("%d objects checked for %v: %d %s, %d to decide, %d with warnings", s.Checked, r.Release, convert-kept, verb, s.Decide, s.Warn)
	if kept > 0 {
		line += fmt.Sprintf("; %d not converted, as their files are invalid or cannot be written", kept)
	}
	if s.NotChecked > 0 {
		reasons := map[string]int{}
		for i := range r.Objects {
			if reason, _, _ := strings.Cut(r.Objects[i].NotChecked, ":"); reason != "" {
				reasons[reason]++
			}
		}
		var parts []string
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			parts = append(parts, fmt.Sprintf("%s %d", reason, reasons[reason]))
		}
		line += fmt.Sprintf("; %d not checked (%s)", s.NotChecked, strings.Join(parts, ", "))
	}
	return line
}
