package suggest

import "testing"

func TestTheNameThatDiffersLeastIsTheOneThatWasMeant(t *testing.T) {
	names := []string{"job", "namespace", "node-status", "nodestatuses", "port"}
	for _, c := range []struct{ name, want string }{
		{"namspace", "namespace"}, {"NameSpace", "namespace"}, {"name-space", "namespace"}, {"node_status", "node-status"},
		{"namspac", "namespace"}, {"nmspac", ""}, {"jab", "job"}, {"foo", ""}, {"prt", "port"}, {"rt", ""}, {"", ""},
	} {
		if got := Closest(c.name, names); got != c.want {
			t.Errorf("%q: %q, want %q", c.name, got, c.want)
		}
	}
	if got := Closest("x", nil); got != "" {
		t.Errorf("of no names: %q", got)
	}
}

func TestHowManyLettersDiffer(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%q, %q: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
