package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	apigates "svc.dev/svc/apiserver/gates"
	"svc.dev/svc/controllers"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/svclet/config"
)

// since returns the page that says of each flag, field and gate of the document on the node
// agent since when it works, or why it does not.
func since() (string, error) {
	dates, err := readDates("hack/reference/since.txt")
	if err != nil {
		return "", err
	}
	others, err := readOthers("hack/reference/gates.txt")
	if err != nil {
		return "", err
	}
	p := sincePage{dates: dates, others: others}
	p.text.WriteString(`# Since when settings of svclet work

<!-- Generated from the table of settings and hack/reference/*.txt by make generate; do not edit. -->

Every flag of document 3, every field of the configuration, and every feature gate. The date is that of the commit with which it began to have its effect; later commits may have completed it. What does not
work is said instead, and listed at the end. [Settings of svclet](svclet.md) and [Feature gates](feature-gates.md) say what they do.

`)
	p.settings("flag", "Flags", func(s *config.Setting) string { return s.Flag })
	p.settings("field", "Fields", func(s *config.Setting) string { return s.Field })
	p.gates()
	fmt.Fprintf(&p.text, "## What does not work\n\n%d entries:\n\n", len(p.missing))
	for _, entry := range p.missing {
		p.text.WriteString("- " + entry + "\n")
	}
	if len(p.undated) > 0 {
		return "", fmt.Errorf("hack/reference/since.txt has no date of %s: add the day on which it began to work", strings.Join(p.undated, ", "))
	}
	return p.text.String(), nil
}

type sincePage struct {
	dates  map[string]string    // by "flag name"
	others map[string][2]string // state and text of the gates on which no program acts
	text   strings.Builder
	// missing are the entries that do not work, undated those that work without a date.
	missing, undated []string
}

// settings writes the table of the flags or of the fields.
func (p *sincePage) settings(kind, title string, name func(*config.Setting) string) {
	var rows strings.Builder
	count := 0
	all := config.All()
	for i := range all {
		s := &all[i]
		if name(s) == "" {
			continue
		}
		count++
		shown := code(name(s))
		if kind == "flag" {
			shown = code("--" + s.Flag)
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", shown, p.since(kind, name(s), s), cell(s.NoEffect))
	}
	fmt.Fprintf(&p.text, "## %s\n\n%d.\n\n| %s | works since | |\n|---|---|---|\n%s\n", title, count, kind, rows.String())
}

// since returns the cell of a setting.
func (p *sincePage) since(kind, name string, s *config.Setting) string {
	if s.NoEffect != "" {
		return "accepted, without effect"
	}
	return p.date(kind, name)
}

func (p *sincePage) date(kind, name string) string {
	date := p.dates[kind+" "+name]
	if date == "" {
		p.undated = append(p.undated, kind+" "+name)
	}
	return date
}

// gates writes the table of the gates.
func (p *sincePage) gates() {
	all := featuregates.All()
	fmt.Fprintf(&p.text, "## Feature gates\n\n%d, with those that are GA in release 1.28.\n\n| gate | works since | |\n|---|---|---|\n", len(all))
	for _, gate := range all {
		shown := code(gate.Name)
		other, known := p.others[gate.Name]
		if !known && (config.ActsOn(gate.Name) || apigates.Acts(gate.Name) || slices.Contains(controllers.Gates(), gate.Name)) {
			fmt.Fprintf(&p.text, "| %s | %s | |\n", shown, p.date("gate", gate.Name))
			continue
		}
		if !known {
			p.undated = append(p.undated, "gate "+gate.Name+" (or gates.txt what happens without it)")
		}
		state := map[string]string{"on": "always on", "missing": "does not work", "elsewhere": "not svc's"}[other[0]]
		if other[0] == "missing" {
			p.missing = append(p.missing, shown+": "+other[1])
		}
		fmt.Fprintf(&p.text, "| %s | %s | %s |\n", shown, state, cell(other[1]))
	}
	p.text.WriteString("\n")
}

// readDates reads lines of a kind, a name and a date.
func readDates(path string) (map[string]string, error) {
	dates := map[string]string{}
	err := lines(path, func(line string) error {
		words := strings.Fields(line)
		if len(words) != 3 {
			return fmt.Errorf("%q: must be a kind, a name and a date", line)
		}
		dates[words[0]+" "+words[1]] = words[2]
		return nil
	})
	return dates, err
}

// readOthers reads lines of a gate, its state and a text.
func readOthers(path string) (map[string][2]string, error) {
	all := map[string][2]string{}
	err := lines(path, func(line string) error {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 || words[1] != "on" && words[1] != "missing" && words[1] != "elsewhere" {
			return fmt.Errorf("%q: must be a gate, on, missing or elsewhere, and a text", line)
		}
		all[words[0]] = [2]string{words[1], words[2]}
		return nil
	})
	return all, err
}

// lines calls each with the lines of a file that are not comments.
func lines(path string, each func(line string) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "#") {
			if err := each(line); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return scanner.Err()
}
