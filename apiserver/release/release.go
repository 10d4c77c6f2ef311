// Package release owns the Kubernetes release that the server emulates: the content
// of /version, and the API versions that are served.
//
// What each release serves is in the table of package releases, so that one binary
// can serve exactly the versions of a given release.
package release

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"svc.dev/svc/internal/releases"
)

// Release is a release of the API, such as 1.28.
type Release struct{ Major, Minor int }

// Default is the release that the specification describes.
var Default = Release{1, 28}

// Newest is the newest release that this build knows.
var Newest = Release{1, int(releases.Newest)}

// Oldest is the oldest release that this build knows.
var Oldest = Release{1, int(releases.Oldest)}

// Parse parses "1.28" ("v1.28" and "1.28.3" are the same release) or "latest". The
// error lists what is accepted.
func Parse(s string) (Release, error) {
	r, err := releases.ParseRelease(s)
	if err != nil {
		return Release{}, err
	}
	return Release{1, int(r)}, nil
}

// String returns the release in the form that Parse accepts.
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// Before reports whether r came out before other.
func (r Release) Before(other Release) bool {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor)) < 0
}

// inTable returns the release as the table of releases has it.
func (r Release) inTable() releases.Release { return releases.Release(r.Minor) }

// AddFlags adds the flag --release and its name in kube-apiserver. changed is called with
// each value that the flag gets.
func AddFlags(fs *pflag.FlagSet, r *Release, changed func(Release)) {
	var by string
	fs.Var(&flag{"release", r, changed, &by}, "release", fmt.Sprintf("Release of Kubernetes whose API is served, from %v to %v, or %s.",
		releases.Oldest, releases.Newest, releases.Latest))
	fs.Var(&flag{"emulated-version", r, changed, &by}, "emulated-version", "Another name of --release, as kube-apiserver has it: also kube=X.Y.")
}

// flag is a flag whose value is a release, which another flag may set as well.
type flag struct {
	name    string
	release *Release
	changed func(Release)
	// by is the name of the flag that has set the release, empty if it is the default.
	by *string
}

// Set implements pflag.Value. The last value of one flag counts; two flags must agree.
func (f *flag) Set(text string) error {
	parsed, err := Parse(strings.TrimPrefix(text, "kube="))
	if err != nil {
		return fmt.Errorf("must be %v to %v, or %s", releases.Oldest, releases.Newest, releases.Latest) // the flag's error has the text
	}
	if *f.by != "" && *f.by != f.name && parsed != *f.release {
		return fmt.Errorf("must be that of --%s, %v; leave one of the two flags out", *f.by, *f.release)
	}
	*f.release, *f.by = parsed, f.name
	f.changed(parsed)
	return nil
}

// String implements pflag.Value.
func (f *flag) String() string {
	if f.release == nil { // pflag's zero value
		return ""
	}
	return f.release.String()
}

// Type implements pflag.Value.
func (f *flag) Type() string { return "release" }
