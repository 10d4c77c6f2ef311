package configlines_test

import (
	"errors"
	"strings"
	"testing"

	"svc.dev/svc/internal/configlines"
)

const file = `# a comment
apiVersion: v1
kind: Configuration
users:
- name: a
  groups: [x, y]
- name: b
  limits: &limits
    most: "3"
    names:
      one: 1
shared: *limits
`

func TestExplainNamesTheLineOfEachField(t *testing.T) {
	for _, test := range []struct{ name, err, want string }{
		{"a field of a validation", "users[1].name: Duplicate value: \"b\"", "line 7: users[1].name: Duplicate value: \"b\""},
		{"a field that is absent has the line of the one above", "users[1].limits.least: Required value", "line 8: users[1].limits.least: Required value"},
		{"several fields", "[users[0].name: Invalid value: \"a\", shared.most: Invalid value: \"3\"]",
			"[line 5: users[0].name: Invalid value: \"a\", line 9: shared.most: Invalid value: \"3\"]"},
		{"an item of a list in one line", "users[0].groups[1]: Invalid value", "line 6: users[0].groups[1]: Invalid value"},
		{"a field after other words", "invalid configuration: users[0].name: Invalid value", "invalid configuration: line 5: users[0].name: Invalid value"},
		{"no field", "users.yaml: nothing: x", "users.yaml: nothing: x"},
		{"unknown fields", `strict decoding error: unknown field "users[0].groups", unknown field "kind"`,
			`strict decoding error: line 6: unknown field "users[0].groups", line 3: unknown field "kind"`},
		{"an unknown field without its path", `json: unknown field "names"`, `json: line 10: unknown field "names"`},
		{"a field with a value of another type", "json: cannot unmarshal string into Go struct field Limits.users.limits.most of type int",
			"line 9: json: cannot unmarshal string into Go struct field Limits.users.limits.most of type int"},
		{"a list", "json: cannot unmarshal array into Go struct field User.users.groups of type string",
			"line 6: json: cannot unmarshal array into Go struct field User.users.groups of type string"},
		{"an error of several lines", "a:\n  b", "a: b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := errors.New(test.err)
			got := configlines.Explain([]byte(file), err)
			if got.Error() != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if !errors.Is(got, err) {
				t.Error("the error is not wrapped")
			}
		})
	}
}

func TestExplainLeavesNoErrorAlone(t *testing.T) {
	if err := configlines.Explain([]byte(file), nil); err != nil {
		t.Error(err)
	}
}

func TestExplainKeepsTheErrorOfAFileThatIsNoYAML(t *testing.T) {
	err := errors.New("users: wrong")
	if got := configlines.Explain([]byte("a: [b"), err); !errors.Is(got, err) || got.Error() != err.Error() {
		t.Errorf("got %v", got)
	}
}

func TestPartKeepsTheLinesOfTheFile(t *testing.T) {
	whole, err := configlines.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	part, found := whole.Part("users[1].limits")
	if !found {
		t.Fatal("not found")
	}
	if got := part.Line("names.one"); got != 11 {
		t.Errorf("line %d, want 11", got)
	}
	if _, found := whole.Part("users[2]"); found {
		t.Error("found a third user")
	}
}

func TestParseRefusesNoDocumentAndTwo(t *testing.T) {
	for content, want := range map[string]string{"": "empty", "a: 1\n---\nb: 2\n": "second document", "a: [": "line 1"} {
		if _, err := configlines.Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", content, err, want)
		}
	}
}

func FuzzExplain(f *testing.F) {
	f.Add(file, `users[1].name: a`)
	f.Add("a: &a\n- *a\n", "json: cannot unmarshal string into Go struct field A.a of type int")
	f.Fuzz(func(t *testing.T, content, text string) {
		err := errors.New(text)
		if got := configlines.Explain([]byte(content), err); !errors.Is(got, err) {
			t.Errorf("got %v", got)
		}
	})
}
