package report

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"svc.dev/svc/internal/convert"
)

// TestJUnitIsValid validates what is printed as JUnit against the schema that Jenkins' xUnit
// plugin publishes for version 10 (testdata/junit-10.xsd).
func TestJUnitIsValid(t *testing.T) {
	schema := readXSD(t)
	printed, err := os.ReadFile(filepath.Join("testdata", "junit.golden"))
	if err != nil {
		t.Fatal(err)
	}
	var printedOdd strings.Builder
	if err := New(25, append(outcomes(), convert.Outcome{File: odd, APIVersion: odd, Kind: odd, Name: odd, NotChecked: odd, Findings: []convert.Finding{
		{Rule: convert.UnknownField, Level: convert.Error, Path: odd, Message: odd}, {Rule: convert.UnknownField, Level: convert.Warning, Path: odd, Message: odd},
	}})).JUnit(&printedOdd); err != nil {
		t.Fatal(err)
	}
	for name, document := range map[string]string{"junit.golden": string(printed), "odd": printedOdd.String()} {
		if errs := schema.validate(document); len(errs) > 0 {
			t.Errorf("%s: %s\n%s", name, strings.Join(errs, "\n"), document)
		}
	}
}

// TestWhatTheSchemaOfJUnitRefuses: the validation can fail.
func TestWhatTheSchemaOfJUnitRefuses(t *testing.T) {
	schema := readXSD(t)
	suite := func(inner string) string {
		return `<testsuites><testsuite name="a" tests="1" failures="0" errors="0">` + inner + `</testsuite></testsuites>`
	}
	for document, want := range map[string]string{
		suite(`<testcase name="a"/>`):                           "",
		suite(`<testcase/>`):                                    "testcase: attribute name is missing",
		suite(`<testcase name="a" line="1"/>`):                  "testcase: attribute line is not in the schema",
		suite(`<testcase name="a"><warning/></testcase>`):       `testcase: its elements are "warning "`,
		suite(`<testcase name="a">text</testcase>`):             `testcase: text "text"`,
		suite(`<properties/><properties><other/></properties>`): `properties: its elements are "other "`,
		`<testsuites time="x"/>`:                                `testsuites: attribute time is "x"`,
		`<testsuites><testcase name="a"/></testsuites>`:         `testsuites: its elements are "testcase "`,
		`<suites/>`:    "suites is not in the schema",
		`<testsuites>`: "XML syntax error on line 1: unexpected EOF",
		suite(`<testcase name="a"><system-out>b</system-out></testcase>`):    "",
		suite(`<testcase name="a"><system-out><b/></system-out></testcase>`): `system-out: its elements are "b "`,
	} {
		if got := strings.Join(schema.validate(document), "\n"); got != want {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
	}
}

// node is an element of XML, of the schema or of a document.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []node     `xml:",any"`
	Text     string     `xml:",chardata"`
}

// attr returns an attribute, or "".
func (n *node) attr(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// xsd is a schema of the kind that JUnit's are: elements and types at the top, of sequences
// and choices, with attributes. What else the language has is refused.
type xsd struct {
	elements, types map[string]*node
}

func readXSD(t *testing.T) *xsd {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "junit-10.xsd"))
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := xml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	s := &xsd{elements: map[string]*node{}, types: map[string]*node{}}
	for i := range root.Children {
		switch n := &root.Children[i]; n.XMLName.Local {
		case "element":
			s.elements[n.attr("name")] = n
		case "complexType", "simpleType":
			s.types[n.attr("name")] = n
		default:
			t.Fatalf("the schema has %s, which this test cannot read", n.XMLName.Local)
		}
	}
	return s
}

// validate returns what is wrong with a document.
func (s *xsd) validate(document string) []string {
	var root node
	if err := xml.Unmarshal([]byte(document), &root); err != nil {
		return []string{err.Error()}
	}
	return s.element(&root)
}

func (s *xsd) element(n *node) []string {
	name := n.XMLName.Local
	declared, ok := s.elements[name]
	if !ok {
		return []string{name + " is not in the schema"}
	}
	typ := &node{} // xs:string
	switch kind := declared.attr("type"); {
	case len(declared.Children) > 0:
		typ = &declared.Children[0]
	case kind != "xs:string":
		typ = s.types[kind]
	}
	model, names := "", ""
	errs := s.attributes(name, n, typ)
	for i := range typ.Children {
		if c := &typ.Children[i]; c.XMLName.Local != "attribute" {
			model += particle(c)
		}
	}
	for i := range n.Children {
		names += n.Children[i].XMLName.Local + " "
	}
	if !regexp.MustCompile(`^` + model + `$`).MatchString(names) {
		return append(errs, fmt.Sprintf("%s: its elements are %q", name, names))
	}
	if text := strings.TrimSpace(n.Text); text != "" && typ.attr("mixed") != "true" && declared.attr("type") != "xs:string" {
		errs = append(errs, fmt.Sprintf("%s: text %q", name, text))
	}
	for i := range n.Children {
		errs = append(errs, s.element(&n.Children[i])...)
	}
	return errs
}

// particle returns the elements that a part of a type allows, as a regular expression of their
// names with a space after each.
func particle(n *node) string {
	var parts []string
	for i := range n.Children {
		parts = append(parts, particle(&n.Children[i]))
	}
	var model string
	switch n.XMLName.Local {
	case "element":
		model = regexp.QuoteMeta(n.attr("ref")+n.attr("name")) + " "
	case "choice":
		model = strings.Join(parts, "|")
	case "sequence":
		model = strings.Join(parts, "")
	default:
		panic("the schema has " + n.XMLName.Local + ", which this test cannot read")
	}
	least, most := n.attr("minOccurs"), n.attr("maxOccurs")
	switch {
	case least == "0" && most == "unbounded":
		return "(?:" + model + ")*"
	case least == "0" && most == "":
		return "(?:" + model + ")?"
	case least == "" && most == "":
		return "(?:" + model + ")"
	}
	panic("the schema has bounds which this test cannot read: " + least + " to " + most)
}

func (s *xsd) attributes(name string, n, typ *node) (errs []string) {
	declared := map[string]*node{}
	for i := range typ.Children {
		if c := &typ.Children[i]; c.XMLName.Local == "attribute" {
			declared[c.attr("name")] = c
			if c.attr("use") == "required" && n.attr(c.attr("name")) == "" {
				errs = append(errs, fmt.Sprintf("%s: attribute %s is missing", name, c.attr("name")))
			}
		}
	}
	for _, a := range n.Attrs {
		d, ok := declared[a.Name.Local]
		if !ok {
			errs = append(errs, fmt.Sprintf("%s: attribute %s is not in the schema", name, a.Name.Local))
			continue
		}
		if simple := s.types[d.attr("type")]; simple != nil {
			pattern := simple.Children[0].Children[0].attr("value")
			if !regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(a.Value) {
				errs = append(errs, fmt.Sprintf("%s: attribute %s is %q", name, a.Name.Local, a.Value))
			}
		}
	}
	return errs
}
