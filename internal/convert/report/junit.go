package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"svc.dev/svc/internal/convert"
)

// The parts of JUnit's XML that CI systems read: a suite for each file, a case for each
// object.
type (
	junitSuites struct {
		XMLName  xml.Name      `xml:"testsuites"`
		Name     string        `xml:"name,attr"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Suites   []*junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Classname string        `xml:"classname,attr"`
		Skipped   *junitText    `xml:"skipped,omitempty"`
		Failure   *junitFailure `xml:"failure,omitempty"`
		Output    string        `xml:"system-out,omitempty"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit prints the report as the results of tests: an object with an error is a failed
// test, its warnings are the output of the test.
func (r *Report) JUnit(out io.Writer) error {
	all := junitSuites{Name: fmt.Sprintf("svc convert --check --release=%v", r.Release)}
	var suite *junitSuite
	for i := range r.Objects {
		o := &r.Objects[i]
		if suite == nil || suite.Name != o.File {
			suite = &junitSuite{Name: o.File}
			all.Suites = append(all.Suites, suite)
		}
		c := caseOf(o)
		suite.Tests++
		all.Tests++
		if c.Failure != nil {
			suite.Failures++
			all.Failures++
		}
		if c.Skipped != nil {
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(out)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func caseOf(o *convert.Outcome) junitCase {
	c := junitCase{Name: name(o) + place(o, o.Line), Classname: o.APIVersion}
	if o.NotChecked != "" {
		c.Skipped = &junitText{o.NotChecked}
	}
	var failures, output []string
	for _, f := range o.Findings {
		line := fmt.Sprintf("%s: %s: %s", place(o, f.Line), f.Path, f.Message)
		if f.Level != convert.Error {
			output = append(output, line)
			continue
		}
		if c.Failure == nil {
			c.Failure = &junitFailure{Message: f.Message, Type: string(f.Rule)}
		}
		failures = append(failures, line)
	}
	if c.Failure != nil {
		c.Failure.Text = strings.Join(failures, "\n")
	}
	c.Output = strings.Join(output, "\n")
	return c
}
