package translations

import "testing"

func TestTranslationsAreLoadedForKubectl(t *testing.T) {
	for _, tc := range []struct {
		line []string
		want bool
	}{
		{[]string{"svc"}, false},
		{[]string{"/usr/bin/svc", "up", "--node=false"}, false},
		{[]string{"/kubectl/svc", "apiserver"}, false},
		{[]string{"svc", "kubectl", "get", "pods"}, true},
		{[]string{"svc", "--help", "kubectl"}, true},
		{[]string{"svc", "__complete", "kubectl", ""}, true},
		{[]string{"/usr/local/bin/kubectl", "get"}, true},
	} {
		if got := needed(tc.line); got != tc.want {
			t.Errorf("%q: %v, want %v", tc.line, got, tc.want)
		}
	}
}
