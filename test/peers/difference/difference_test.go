package difference_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"svc.dev/svc/test/peers/difference"
)

func same(_, text string) string { return text }

func TestFieldsOfListsAreNamedByTheirKeys(t *testing.T) {
	type object = map[string]any
	type list = []any
	got, err := difference.Of(object{
		"phase": "Running", "count": 12345678901234, "none": object{}, "empty": list{},
		"labels": object{"kubernetes.io/os": "linux"},
		"containers": list{
			object{"name": "b", "ready": true}, object{"name": "a", "ready": false},
		},
		"addresses": list{object{"type": "IP", "is": "1"}, object{"type": "IP", "is": "2"}},
		"args":      list{"x", "y"},
	}, func(path, text string) string {
		if path == "phase" {
			return "is " + text
		}
		return text
	})
	if err != nil {
		t.Fatal(err)
	}
	want := difference.Fields{
		"phase": "is Running", "count": "12345678901234", "none": "{}", "empty": "[]",
		"labels[kubernetes.io/os]": "linux",
		"containers[b].name":       "b", "containers[b].ready": "true",
		"containers[a].name": "a", "containers[a].ready": "false", "containers[]": "b a",
		"addresses[IP].type": "IP", "addresses[IP].is": "1",
		"addresses[IP#2].type": "IP", "addresses[IP#2].is": "2", "addresses[]": "IP IP#2",
		"args[0]": "x", "args[1]": "y",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestADifferenceIsAFieldThatIsNotTheSame(t *testing.T) {
	svclet, err := difference.Of(map[string]any{"same": 1, "other": "x", "more": true}, same)
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := difference.Of(map[string]any{"same": 1, "other": "y", "less": nil}, same)
	if err != nil {
		t.Fatal(err)
	}
	got := difference.Between("pod", svclet, kubelet)
	want := []difference.Difference{
		{Subject: "pod", Path: "less", Svclet: difference.Absent, Kubelet: "<nil>"},
		{Subject: "pod", Path: "more", Svclet: "true", Kubelet: difference.Absent},
		{Subject: "pod", Path: "other", Svclet: "x", Kubelet: "y"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestEveryDifferenceHasToBeExplainedAndEveryExplanationToBeNeeded(t *testing.T) {
	one := difference.Difference{Subject: "web", Path: "a[x].b", Svclet: "1", Kubelet: "2\n3"}
	for name, tt := range map[string]struct {
		explanation  difference.Explanation
		fits, needed bool
	}{
		"its path":          {explanation: difference.Explanation{Path: "a[x].b"}, fits: true, needed: true},
		"a pattern":         {explanation: difference.Explanation{Path: "a[*].b"}, fits: true, needed: true},
		"no part":           {explanation: difference.Explanation{Path: "a[x]"}, needed: true},
		"no expression":     {explanation: difference.Explanation{Path: "a.x..b"}, needed: true},
		"its subject":       {explanation: difference.Explanation{Of: "w*", Path: "*"}, fits: true, needed: true},
		"another subject":   {explanation: difference.Explanation{Of: "w", Path: "*"}, needed: true},
		"its values":        {explanation: difference.Explanation{Path: "*", Svclet: "1", Kubelet: "2*3"}, fits: true, needed: true},
		"a value":           {explanation: difference.Explanation{Path: "*", Kubelet: "2"}, needed: true},
		"another value":     {explanation: difference.Explanation{Path: "*", Svclet: "2"}, needed: true},
		"one that may miss": {explanation: difference.Explanation{Path: "c", Sometimes: true}},
	} {
		t.Run(name, func(t *testing.T) {
			unexplained, obsolete := difference.Check([]difference.Difference{one}, []difference.Explanation{tt.explanation})
			if fits := len(unexplained) == 0; fits != tt.fits {
				t.Errorf("fits: %t, want %t", fits, tt.fits)
			}
			if got, want := len(obsolete) > 0, tt.needed && !tt.fits; got != want {
				t.Errorf("obsolete: %t, want %t", got, want)
			}
		})
	}
}

func TestExplanationsNeedAPathAndAReason(t *testing.T) {
	for name, tt := range map[string]struct {
		content, want string
	}{
		"whole":         {content: "pods:\n- {path: x, reason: so}\n"},
		"no reason":     {content: "pods:\n- {path: x}\n", want: "pods[0]: path and reason are required"},
		"no such field": {content: "pods:\n- {path: x, reason: so, why: so}\n", want: `unknown field "why"`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "list.yaml")
			if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := difference.ReadList(file)
			switch {
			case tt.want == "" && (err != nil || len(list["pods"]) != 1):
				t.Errorf("got %v, %v", list, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
