package manifest

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const stream = `# A comment before all.
---
# Source: chart/templates/ingress.yaml
apiVersion: networking.k8s.io/v1beta1   # soon gone

kind: Ingress
metadata:
  name: "web"

  annotations: {a: b}   # flow style
spec:
  rules:
    # the site
    - host: example.com

      http:
        paths:
          - path: /
            backend: {serviceName: web, servicePort: 80}
---

apiVersion: v1
kind: ConfigMap
data:
  text: |
    --- not a separator

    two
`

func TestAChangeKeepsEverythingElse(t *testing.T) {
	documents, err := Parse("a.yaml", stream)
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 3 || documents[0].Root != nil || documents[2].Line != 20 {
		t.Fatalf("%d documents: %+v", len(documents), documents)
	}
	var joined strings.Builder
	for _, d := range documents {
		joined.WriteString(d.Text)
	}
	if joined.String() != stream {
		t.Error("the texts of the documents are not the file's")
	}
	ingress := documents[1]
	SetText(Get(ingress.Root, "apiVersion"), "networking.k8s.io/v1")
	path := Items(Get(Items(ingress.Root, "spec", "rules")[0], "http"), "paths")[0]
	if line := ingress.LineOf(path); line != 18 {
		t.Errorf("the path is on line %d", line)
	}
	Set(path, "pathType", String("Prefix"))
	Set(path, "backend", Map("service", Map("name", String("web"), "port", Map("number", Int(80)))))
	got, err := ingress.Write()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(ingress.Text, "v1beta1   # soon gone", "v1 # soon gone", 1)
	want = strings.Replace(want, "backend: {serviceName: web, servicePort: 80}\n", `backend:
              service:
                name: web
                port:
                  number: 80
            pathType: Prefix
`, 1)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWriteOfOtherForms(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"compact lists", "a:\n- x: 1\n\n- x: 2\nb: old\n", "a:\n- x: 1\n\n- x: 2\nb: new\n"},
		{"four spaces", "a:\n    c: 1\n\nb: old # why\n", "a:\n    c: 1\n\nb: new # why\n"},
		{"JSON with tabs", "{\n\t\"a\": [1, 2.50],\n\t\"b\": \"old\"\n}\n", "{\n\t\"a\": [1, 2.50],\n\t\"b\": \"new\"\n}\n"},
		{"JSON", "{\n    \"b\": \"old\",\n    \"a\": \"<&>\"\n}\n", "{\n    \"b\": \"new\",\n    \"a\": \"<&>\"\n}\n"},
		{"JSON on one line", "{\"b\":\"old\",\"a\":[1]}\n", "{\"b\":\"new\",\"a\":[1]}\n"},
		{"an anchor elsewhere", "a: &x\n  c: 1\nd: *x\nb: old\n", "a: &x\n  c: 1\nd: *x\nb: new\n"},
		{"no newline at the end", "a: 1\nb: old", "a: 1\nb: new"},
		{"a byte order mark", "\ufeffa: 1\nb: old\n", "\ufeffa: 1\nb: new\n"},
		{"a byte order mark before JSON", "\ufeff{\"b\": \"old\"}", "\ufeff{\"b\": \"new\"}"},
		{"a directive", "%YAML 1.2\n---\nb: old\n...\n", "%YAML 1.2\n---\nb: new\n...\n"},
		{"mixed line ends", "a: 1\r\nb: old\nc: 2\r\n", "a: 1\r\nb: new\nc: 2\r\n"},
		{"flow style", "{ b:  \"old\",   # why\n  a:   1 }\n", "{ b:  \"new\",   # why\n  a:   1 }\n"},
		{"tabs", "b: old\t# why\na: 1\t\n", "b: new\t# why\na: 1\t\n"},
		{"keys that are there twice", "a:   1\nb: old\na:   2\n", "a:   1\nb: new\na:   2\n"},
		{"numbers and escapes in JSON", `{"a": [1,  1E400, 123456789012345678901],"b":"old", "c": "\u003c\/"}`, `{"a": [1,  1E400, 123456789012345678901],"b":"new", "c": "\u003c\/"}`},
		{"line ends of Windows", "a: 1\r\n\r\nb: old\r\n", "a: 1\r\n\r\nb: new\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			documents, err := Parse("a.yaml", tc.text)
			if err != nil {
				t.Fatal(err)
			}
			SetText(Get(documents[0].Root, "b"), "new")
			got, err := documents[0].Write()
			if err != nil || got != tc.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
}

// Kubernetes reads YAML 1.1.
func TestBooleansOfYAML11AreBooleansInJSON(t *testing.T) {
	documents, err := Parse("a.yaml", "a: no\nb: [yes, On, 'no', \"off\", north, !!str yes]\nc: 0644\n")
	if err != nil {
		t.Fatal(err)
	}
	Set(documents[0].Root, "d", String("no"))
	const want = `{"a":false,"b":[true,true,"no","off","north","yes"],"c":420,"d":"no"}` + "\n"
	if got, err := EncodeJSON(documents[0].Root, 0); err != nil || got != want {
		t.Errorf("%v, got %s", err, got)
	}
}

// Added keys leave other lines as they are.
func TestWriteOfMoreThanScalars(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"mixed line ends", "a:   1\r\nb: 2\n", "a:   1\r\nb: 2\nnew: 1\r\n"},
		{"an anchor", "a: &x {c: 1}\nb:\n  <<: *x\n  d: 1\n", "a: &x {c: 1}\nb:\n  <<: *x\n  d: 1\nnew: 1\n"},
		{"no newline at the end", "a: 1\nb:   2", "a: 1\nb:   2\nnew: 1\n"},
		{"JSON", "{\n  \"a\": {\"b\": 1.10},\n  \"c\": [1, 2]\n}", "{\n  \"a\": {\"b\": 1.10},\n  \"c\": [1, 2],\n  \"new\": 1\n}"},
		{"JSON on one line", `{"a":{"b":1.10},"c":[1,2]}`, `{"a":{"b":1.10},"c":[1,2],"new":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			documents, err := Parse("a.yaml", tc.text)
			if err != nil {
				t.Fatal(err)
			}
			Set(documents[0].Root, "new", Int(1))
			if got, err := documents[0].Write(); err != nil || got != tc.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
}

func TestDocumentsOfAStream(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       int
	}{
		{"directives", "%YAML 1.1\n---\na: 1\n...\n%YAML 1.1\n# why\n---\na: 1\n---\na: 1\n", 3},
		{"JSON objects", "{\"a\": 1}\n{\"a\": 1} {\"a\": 1}\n", 3},
		{"an invalid one", "a: 1\n---\nb: [\n---\na: 1\n", 2},
	} {
		documents, err := Parse("a.yaml", tc.text)
		if len(documents) != tc.want || (err != nil) != (tc.name == "an invalid one") {
			t.Errorf("%s: %v, %d documents", tc.name, err, len(documents))
		}
		text := ""
		for _, d := range documents {
			if text += d.Text; Text(d.Root, "a") != "1" {
				t.Errorf("%s: %q", tc.name, d.Text)
			}
		}
		if err == nil && text != tc.text {
			t.Errorf("%s: got %q", tc.name, text)
		}
	}
}

func TestAliasesAndMergeKeysAreReplaced(t *testing.T) {
	documents, err := Parse("a.yaml", "base: &b {x: 1, y: 2}\nsub:\n  <<: *b\n  y: 3\nother: *b\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := Text(documents[0].Root, "sub", "x") + Text(documents[0].Root, "sub", "y") + Text(documents[0].Root, "other", "y"); got != "132" {
		t.Errorf("got %s", got)
	}
}

func TestObjectsOfLists(t *testing.T) {
	documents, err := Parse("a.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: PodList\n  items:\n  - metadata: {name: a}\n- apiVersion: v1\n  kind: Secret\n")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range documents[0].Objects() {
		kinds = append(kinds, Text(o, "kind"))
	}
	if got := strings.Join(kinds, " "); got != "Pod Secret" {
		t.Errorf("got %s", got)
	}
}

func TestMistakesNameTheLine(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [*" + p + strings.Repeat(",*"+p, 9) + "]\n"
	}
	for _, tc := range []struct{ file, text, want string }{
		{"a.yaml", "a: 1\n---\nb: 1\n  c: 2\n", "a.yaml:4: invalid YAML: mapping values are not allowed in this context"},
		{"a.yaml", "a: {{ .Values.x }}\nb: [\n", "render it first"},
		{"a.json", "{\n\"a\": 1,\n}", "a.json:3: invalid JSON"},
		{"a.yaml", "a: 1\n...\nb: 2\n", "a.yaml:2: invalid YAML"},
		{"a.yaml", bomb, "expand to too much"},
		{"a.yaml", "a: &a [*a]\n", "a.yaml:1: invalid YAML"},
	} {
		if _, err := Parse(tc.file, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %s", tc.text[:min(20, len(tc.text))], err, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(stream)
	f.Add("{\"a\": [1, null, \"x\"]}")
	f.Add("a: &a {b: 1}\nc:\n  <<: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		documents, err := Parse("a.yaml", text)
		if err != nil {
			return
		}
		for _, d := range documents {
			if d.Root == nil {
				continue
			}
			d.Objects()
			d.Root.HeadComment = ""
			if _, err := d.Write(); err != nil && d.Root.Kind == yaml.MappingNode {
				t.Logf("write: %v", err)
			}
		}
	})
}

func TestDocumentsAreParsedWhenTheyAreAskedFor(t *testing.T) {
	var got []string
	for d, err := range Documents("a.yaml", "a: 1\n---\nb: [\n---\nc: 3\n---\nd: [\n") {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		if got = append(got, d.Text); len(got) == 3 {
			break // nothing is said of the last one
		}
	}
	if len(got) != 3 || got[0] != "a: 1\n" || !strings.HasPrefix(got[1], "a.yaml:") || got[2] != "---\nc: 3\n" {
		t.Errorf("got %q", got)
	}
}
