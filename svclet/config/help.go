package config

import (
	"fmt"
	"io"
	"strings"
)

const synopsis = `svclet is the node agent: it registers its machine with the API server, runs the
pods that are bound to it, and reports their statuses. Without --svcconfig it
runs by itself, with the pods of files and of a URL.

Usage:
  svclet [flags]
  svclet join --help     about making this machine a node of a cluster
  svclet reset --help    about undoing that
  svclet image --help    about the images of the containerd that svclet runs

Flags marked with "deprecated: field" can be set as that field of the
configuration file, which is to be preferred. Kubelet's names of flags are
accepted, too: --kubeconfig, --kube-reserved and so on.
`

// WriteHelp writes what --help prints, in lines of at most width letters.
func WriteHelp(out io.Writer, width int) error {
	var b strings.Builder
	b.WriteString(synopsis)
	flags, c := DefaultFlags(), Default()
	for _, section := range Sections() {
		heading := "\n" + section.Title + ":\n"
		for i := range section.Settings {
			s := &section.Settings[i]
			if s.Flag == "" {
				continue
			}
			b.WriteString(heading)
			heading = ""
			v := value{target: s.target(&flags, c), separator: s.Separator}
			b.WriteString(s.headline(&v))
			wrap(&b, s.Description(), width)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Value returns the type of the setting's values, as the help names it, and the
// default.
func (s *Setting) Value() (kind, byDefault string) {
	flags, c := DefaultFlags(), Default()
	target := s.target(&flags, c)
	if !target.IsValid() {
		return "", ""
	}
	v := value{target: target, separator: s.Separator}
	return v.Type(), v.String()
}

// headline returns the first line of the help: the flag, its type, its default and
// its field.
func (s *Setting) headline(v *value) string {
	line := "  --" + s.Flag
	if s.Short != "" {
		line = "  -" + s.Short + ", --" + s.Flag
		if s.Short == s.Flag {
			line = "  -" + s.Flag
		}
	}
	if kind := v.Type(); kind != "bool" {
		line += " " + kind
	}
	if text := v.String(); text != "" && text != "0" && !(text == "false" && v.Type() == "bool") {
		line += " (default " + text + ")"
	}
	switch {
	case s.Deprecated && s.Field != "":
		line += " [deprecated: " + s.Field + "]"
	case s.Deprecated:
		line += " [deprecated]"
	}
	return line + "\n"
}

// Description returns the usage, the valid values and, if there is no effect, why.
func (s *Setting) Description() string {
	text := s.Usage
	if s.Rule != nil && s.Rule.Takes != "" && !strings.Contains(text, s.Rule.Takes) {
		text += " Must be " + s.Rule.Takes + "."
	}
	if s.NoEffect != "" {
		text += " Has no effect: " + s.NoEffect + "."
	}
	return text
}

const indent = 8

func wrap(b *strings.Builder, text string, width int) {
	width = max(width, 40) - indent
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			fmt.Fprintf(b, "%*s%s\n", indent, "", line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	fmt.Fprintf(b, "%*s%s\n", indent, "", line)
}
