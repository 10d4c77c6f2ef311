// Package release owns the Kubernetes release that the server emulates: the content
// of /version, and the API versions that are served.
//
// The types of k8s.io/api have the releases in which they were introduced and
// removed, so that one binary can serve exactly the versions of a given release.
package release

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	baseversion "k8s.io/component-base/version"
)

// Release is a release of the API, such as 1.28.
type Release struct{ Major, Minor int }

// Default is the release that the specification describes.
var Default = Release{1, 28}

// Newest is the release of the libraries: no later one is known to this build.
var Newest = mustParse(baseversion.DefaultKubeBinaryVersion)

// Parse parses "1.28" (a leading v is allowed). It returns an error if the text is
// not a release or the release is newer than this build.
func Parse(s string) (Release, error) {
	r, err := parse(s)
	if err != nil {
		return Release{}, err
	}
	if r.Major != Newest.Major || Newest.Before(r) {
		return Release{}, fmt.Errorf("release %q is not known to this build: choose one from %d.0 to %s", s, Newest.Major, Newest)
	}
	return r, nil
}

// String returns the release in the form that Parse accepts.
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// Before reports whether r came out before other.
func (r Release) Before(other Release) bool {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor)) < 0
}

func parse(s string) (Release, error) {
	major, minor, ok := strings.Cut(strings.TrimPrefix(s, "v"), ".")
	a, errMajor := strconv.ParseUint(major, 10, 16)
	b, errMinor := strconv.ParseUint(minor, 10, 16)
	if !ok || errMajor != nil || errMinor != nil {
		return Release{}, fmt.Errorf("%q is not a release: write MAJOR.MINOR, such as %s", s, Default)
	}
	return Release{int(a), int(b)}, nil
}

func mustParse(s string) Release {
	r, err := parse(s)
	if err != nil {
		panic(err)
	}
	return r
}
