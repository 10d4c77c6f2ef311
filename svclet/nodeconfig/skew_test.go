package nodeconfig

import (
	"strings"
	"testing"
)

func TestAnAgentIsNotNewerNorMuchOlderThanItsServer(t *testing.T) {
	for _, test := range []struct{ agent, server, want string }{
		{"v1.28.0", "v1.28.3+svc-0.4.0", ""},
		{"v1.25.9", "v1.28.0", ""},
		{"v1.24.0", "v1.28.0", "must not be more than 3 minor releases older"},
		{"v1.36.0", "v1.28.0+svc-0.4.0", "must not be newer than the API server, of release 1.28"},
		{"v2.0.0", "v1.28.0", "the agent is of release 2"},
		{"v1.28.0", "latest", `the API server's version "latest" is not a release`},
	} {
		if got := Skew(test.agent, test.server); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s at %s: %q", test.agent, test.server, got)
		}
	}
}
