package convert

import (
	"errors"
	"strings"

	"svc.dev/svc/internal/manifest"
)

// File converts the objects of a file. It returns the new text, in which documents
// without changes are as they were, and what is known of each object. An error joins the
// mistakes in the file, with their lines: then there is no text, and what is known of the
// valid documents.
func (c *Converter) File(name, text string) (string, []Outcome, error) {
	var out strings.Builder
	var outcomes []Outcome
	var mistakes []error
	for d, err := range manifest.Documents(name, text) {
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		changed := false
		for _, obj := range d.Objects() {
			convert := c.Object
			if c.Kustomization != nil {
				convert = c.kustomization
			}
			o := convert(obj)
			o.File, o.Line = name, d.LineOf(obj)
			for i := range o.Changes {
				o.Changes[i].Line = lineInFile(d, o.Line, o.Changes[i].Line)
			}
			for i := range o.Findings {
				o.Findings[i].Line = lineInFile(d, o.Line, o.Findings[i].Line)
			}
			changed = changed || len(o.Changes) > 0
			outcomes = append(outcomes, o)
		}
		text := d.Text
		if changed && len(mistakes) == 0 {
			d.SettleLists()
			var err error
			if text, err = d.Write(); err != nil {
				return "", nil, err
			}
		}
		out.WriteString(text)
	}
	if len(mistakes) > 0 {
		return "", outcomes, errors.Join(mistakes...)
	}
	return out.String(), outcomes, nil
}

func lineInFile(d *manifest.Document, object, line int) int {
	if line == 0 {
		return object
	}
	return d.Line + line - 1
}
