package groupdomain

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// translateJSON returns a body that is written in pieces of the given size.
func translateJSON(t testing.TB, root *node, body string, size int) string {
	t.Helper()
	var out bytes.Buffer
	b := &jsonBody{to: &out, root: root}
	for piece := []byte(body); len(piece) > 0; {
		n := min(size, len(piece))
		if _, err := b.Write(piece[:n]); err != nil {
			t.Fatal(err)
		}
		piece = piece[n:]
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// publicAnswer returns the node of answers with objects whose fields name a group.
func publicAnswer(t testing.TB, fields ...string) *node {
	public := newNames(t).toWire()
	object := public.object(schema.GroupResource{})
	for _, path := range fields {
		object.at(path).translate = public.field(path)
	}
	return response(object)
}

func TestAllFormsOfAnAnswerSayTheDomainsNames(t *testing.T) {
	for name, test := range map[string]struct {
		fields   []string
		in, want string
	}{
		"object": {
			in: `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"apps/v1","ownerReferences":[{"apiVersion":"v1","kind":"Node"},` +
				`{"apiVersion":"apps.host.svc.dev/v1"}],"managedFields":[{"manager":"a","apiVersion":"apps/v1"}]},"spec":{"apiVersion":"apps/v1"}}`,
			want: `{"kind":"Deployment","apiVersion":"apps.svc.dev/v1","metadata":{"name":"apps/v1","ownerReferences":[{"apiVersion":"core.svc.dev/v1","kind":"Node"},` +
				`{"apiVersion":"apps/v1"}],"managedFields":[{"manager":"a","apiVersion":"apps.svc.dev/v1"}]},"spec":{"apiVersion":"apps/v1"}}`,
		},
		"pretty list": {
			in:   "{\n  \"kind\": \"PodList\",\n  \"apiVersion\": \"v1\",\n  \"items\": [\n    {\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"apps/v1\"}]}}\n  ]\n}",
			want: "{\n  \"kind\": \"PodList\",\n  \"apiVersion\": \"core.svc.dev/v1\",\n  \"items\": [\n    {\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"apps.svc.dev/v1\"}]}}\n  ]\n}",
		},
		"list of custom resources": {
			in:   `{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Widget"}],"kind":"WidgetList"}`,
			want: `{"apiVersion":"example.com.svc.dev/v1","items":[{"apiVersion":"example.com.svc.dev/v1","kind":"Widget"}],"kind":"WidgetList"}`,
		},
		"events of a watch": {
			in:   `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}` + "\n" + `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1"}}` + "\n",
			want: `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"core.svc.dev/v1"}}` + "\n" + `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1"}}` + "\n",
		},
		"table": {
			in:   `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["v1",{"apiVersion":"v1"}],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"managedFields":[{"apiVersion":"v1"}]}}}]}`,
			want: `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["v1",{"apiVersion":"v1"}],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"managedFields":[{"apiVersion":"core.svc.dev/v1"}]}}}]}`,
		},
		"status of a deletion": {
			in:   `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
			want: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
		},
		"fields of the kind": {
			fields: []string{"metadata.name", "spec.group", "rules[].apiGroups[]"},
			in:     `{"apiVersion":"apps/v1","metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","names":{"group":"x"}},"rules":[{"apiGroups":["","*","apps"]}]}`,
			want: `{"apiVersion":"apps.svc.dev/v1","metadata":{"name":"widgets.example.com.svc.dev"},"spec":{"group":"example.com.svc.dev","names":{"group":"x"}},` +
				`"rules":[{"apiGroups":["core.svc.dev","*","apps.svc.dev"]}]}`,
		},
		"escapes": {
			in:   `{"metadata":{"annotations":{"a\"{":"\\"}},"apiVersion":"apps\/v1","x":"}\\\""}`,
			want: `{"metadata":{"annotations":{"a\"{":"\\"}},"apiVersion":"apps.svc.dev/v1","x":"}\\\""}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 2, 7, len(test.in)} {
				if got := translateJSON(t, publicAnswer(t, test.fields...), test.in, size); got != test.want {
					t.Fatalf("in pieces of %d bytes:\n got %s\nwant %s", size, got, test.want)
				}
			}
		})
	}
}

func FuzzJSONIsTranslatedAsItsValue(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{"ownerReferences":[{"apiVersion":"apps/v1"}]}}`,
		`{"items":[{"apiVersion":"v1"},[],{},"x",1,null,{"metadata":{"managedFields":[[{"apiVersion":"v1"}],{"apiVersion":"\u0061pps/v1"}]}}]}`,
		`[{"apiVersion":"v1"}]`, `"apiVersion"`, `{"rows":[{"object":{"apiVersion":"v1"}}],"object":{"object":{"apiVersion":"v1"}}}`,
	} {
		f.Add(seed, 3)
	}
	root := publicAnswer(f)
	f.Fuzz(func(t *testing.T, body string, size int) {
		var value any
		if size < 1 || json.Unmarshal([]byte(body), &value) != nil || !kindsComeFirst(body) {
			return
		}
		want := root.value(value, "")
		var got any
		if out := translateJSON(t, root, body, size); json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("%s became %s", body, out)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %v, want %v", body, got, want)
		}
	})
}

// kindsComeFirst reports whether a document has neither a kind that follows what it
// applies to, nor members of the same name, which have no one meaning.
func kindsComeFirst(body string) bool {
	decoder := json.NewDecoder(strings.NewReader(body))
	var names []map[string]bool // of the open objects; nil for an array
	isKey := false
	for {
		token, err := decoder.Token()
		if err != nil {
			return true
		}
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{':
				names, isKey = append(names, map[string]bool{}), true
				continue
			case '[':
				names = append(names, nil)
			default:
				names = names[:len(names)-1]
			}
		case string:
			if isKey {
				top := names[len(names)-1]
				if top[token] || token == "kind" && len(top) > 0 {
					return false
				}
				top[token] = true
				isKey = false
				continue
			}
		}
		isKey = len(names) > 0 && names[len(names)-1] != nil
	}
}

func BenchmarkJSONOfAList(b *testing.B) {
	item := `{"metadata":{"name":"pod-1","namespace":"default","uid":"5d1c","labels":{"app":"x"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"1"}],` +
		`"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}}]},"spec":{"containers":[` +
		strings.TrimSuffix(strings.Repeat(`{"name":"c","image":"registry.example.com/image:v1","env":[{"name":"A","value":"some value that is not short"}]},`, 16), ",") + `]}}`
	body := []byte(`{"kind":"PodList","apiVersion":"v1","items":[` + strings.TrimSuffix(strings.Repeat(item+",", 1000), ",") + `]}`)
	root := publicAnswer(b)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		out := &jsonBody{to: &bytes.Buffer{}, root: root}
		if _, err := out.Write(body); err != nil {
			b.Fatal(err)
		}
	}
}
