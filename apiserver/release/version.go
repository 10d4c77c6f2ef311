package release

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// svcVersion is svc's own version, set when a release is linked
// (-ldflags "-X svc.dev/svc/apiserver/release.svcVersion=0.2.0").
var svcVersion = "0.1.0"

// SVCVersion is the version of svc itself, without a leading v.
func SVCVersion() string { return svcVersion }

// Public is the version of the view that clients see: it emulates r, and
// /version says v<r>.0+svc-<svcVersion>.
func Public(r Release, svcVersion string) compatibility.EffectiveVersion {
	v := effective()
	v.SetEmulationVersion(r.version())
	return public{EffectiveVersion: v, info: info(r, svcVersion)}
}

// Internal is the version of the view that the server's own clients see: it
// serves all that the libraries know.
func Internal() compatibility.EffectiveVersion { return effective() }

// effective is the libraries' own version. The library's own constructor lets
// it emulate only the last three releases; here any release may be emulated.
func effective() compatibility.MutableEffectiveVersion {
	return compatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, "1.0", "1.0")
}

// public answers /version with a release instead of the libraries' version.
type public struct {
	compatibility.EffectiveVersion
	info apimachineryversion.Info
}

// Info implements compatibility.EffectiveVersion.
func (p public) Info() *apimachineryversion.Info {
	info := p.info
	return &info
}

// info is the answer to /version. Git's part comes from the build information
// that go build records, and is empty for a build outside a checkout.
func info(r Release, svcVersion string) apimachineryversion.Info {
	major, minor := strconv.Itoa(r.Major), strconv.Itoa(r.Minor)
	i := apimachineryversion.Info{
		Major:          major,
		Minor:          minor,
		EmulationMajor: major,
		EmulationMinor: minor,
		GitVersion:     fmt.Sprintf("v%s.0+svc-%s", r, svcVersion),
		GoVersion:      runtime.Version(),
		Compiler:       runtime.Compiler,
		Platform:       runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			i.GitCommit = s.Value
		case "vcs.time":
			i.BuildDate = s.Value
		case "vcs.modified":
			i.GitTreeState = "clean"
			if s.Value == "true" {
				i.GitTreeState = "dirty"
			}
		}
	}
	return i
}

func (r Release) version() *version.Version {
	return version.MajorMinor(uint(r.Major), uint(r.Minor))
}
