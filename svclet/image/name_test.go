package image

import (
	"strings"
	"testing"
)

func TestAnImageWithoutTagAndDigestGetsTheTagLatest(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for _, c := range []struct{ image, full, repository string }{
		{"app", "app:latest", "docker.io/library/app"},
		{"app:1", "app:1", "docker.io/library/app"},
		{"me/app", "me/app:latest", "docker.io/me/app"},
		{"reg.io/app", "reg.io/app:latest", "reg.io/app"},
		{"reg.io:5000/a/b/app", "reg.io:5000/a/b/app:latest", "reg.io:5000/a/b/app"},
		{"localhost/pause:1", "localhost/pause:1", "localhost/pause"},
		{"app" + digest, "app" + digest, "docker.io/library/app"},
		{"app:1" + digest, "app:1" + digest, "docker.io/library/app"},
		{"", "", ""}, {"App", "", ""}, {"app:", "", ""}, {"app::1", "", ""}, {" app", "", ""}, {"reg.io/", "", ""},
		{"app@sha256:abc", "", ""}, {strings.Repeat("a", 64), "", ""}, {"-app", "", ""}, {"a//b", "", ""},
	} {
		got, err := parseName(c.image)
		if got.full != c.full || got.repository != c.repository || (err != nil) != (c.full == "") {
			t.Errorf("%q: %+v, %v", c.image, got, err)
		}
	}
}

func FuzzParsedNamesParseToThemselves(f *testing.F) {
	for _, seed := range []string{"app", "app:1", "reg.io:5000/a/b@sha256:" + strings.Repeat("a", 64), "a/b/c:latest", "[::1]:5000/a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, image string) {
		first, err := parseName(image)
		if err != nil {
			return
		}
		if !strings.HasPrefix(first.full, image) || first.repository == "" {
			t.Fatalf("%q became %+v", image, first)
		}
		if second, err := parseName(first.full); err != nil || second != first {
			t.Fatalf("%q became %+v, then %+v, %v", image, first, second, err)
		}
	})
}
