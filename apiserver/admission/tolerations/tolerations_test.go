package tolerations

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// read reads "key=value:Effect/seconds", or "key:Effect" for the operator Exists.
func read(t *testing.T, text string) []corev1.Toleration {
	t.Helper()
	var list []corev1.Toleration
	for _, word := range strings.Fields(text) {
		what, seconds, timed := strings.Cut(word, "/")
		what, effect, _ := strings.Cut(what, ":")
		key, value, equal := strings.Cut(what, "=")
		toleration := corev1.Toleration{Key: key, Value: value, Effect: corev1.TaintEffect(effect), Operator: corev1.TolerationOpExists}
		if equal {
			toleration.Operator = corev1.TolerationOpEqual
		}
		if timed {
			var n int64
			if _, err := fmt.Sscan(seconds, &n); err != nil {
				t.Fatal(err)
			}
			toleration.TolerationSeconds = &n
		}
		list = append(list, toleration)
	}
	return list
}

func write(list []corev1.Toleration) string {
	var words []string
	for _, t := range list {
		word := t.Key
		if t.Operator == corev1.TolerationOpEqual {
			word += "=" + t.Value
		}
		word += ":" + string(t.Effect)
		if t.TolerationSeconds != nil {
			word += fmt.Sprintf("/%d", *t.TolerationSeconds)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestMerge(t *testing.T) {
	for _, test := range []struct{ rule, first, second, want string }{
		{"different ones stay", "a:", "b:", "a: b:"},
		{"equal ones become one", "a=1:", "a=1:", "a=1:"},
		{"every value covers one value", "a=1:", "a:", "a:"},
		{"every effect covers one effect", "a:NoSchedule", "a:", "a:"},
		{"every key covers one key", "a:NoSchedule", ":", ":"},
		{"a longer time covers a shorter one", "a:NoExecute/5", "a:NoExecute/9", "a:NoExecute/9"},
		{"no time limit covers a time", "a:NoExecute/5", "a:NoExecute", "a:NoExecute"},
		{"another value stays", "a=1:", "a=2:", "a=1: a=2:"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := write(Merge(read(t, test.first), read(t, test.second))); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAllowed(t *testing.T) {
	for _, test := range []struct {
		given, whitelist string
		want             bool
	}{
		{"a:", "", true},
		{"", "a:", true},
		{"a=1:NoSchedule", "a:", true},
		{"a:", "a=1:", false},
		{"a: b:", "a:", false},
		{"a:NoExecute", "a:NoExecute/5", false},
	} {
		if got := Allowed(read(t, test.given), read(t, test.whitelist)); got != test.want {
			t.Errorf("%q within %q: %t", test.given, test.whitelist, got)
		}
	}
}
