package release

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// svcVersion is svc's own version, set when a release is linked
// (-ldflags "-X svc.dev/svc/apiserver/release.svcVersion=0.2.0").
var svcVersion = "0.1.0"

// SVCVersion returns the version of svc itself, without a leading v.
func SVCVersion() string { return svcVersion }

// Public returns the version of the public view: it emulates r, and gitVersion at
// /version is v<r>.0+svc-<svcVersion>.
func Public(r Release, svcVersion string) compatibility.EffectiveVersion {
	v := effective()
	v.SetEmulationVersion(r.version())
	return public{EffectiveVersion: v, info: info(r, svcVersion)}
}

// Internal returns the version of the internal view, for the server's own clients:
// it serves all versions of the libraries.
func Internal() compatibility.EffectiveVersion { return effective() }

// SetExpressions makes the compilers of CEL expressions, which are global, accept in new
// objects what those of the release did: the functions that the release before it had, so
// that servers of both can evaluate what either has stored. Expressions that are stored
// may have all functions.
func SetExpressions(r Release) error {
	kube := utilcompatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(compatibility.DefaultKubeComponent)
	v, ok := kube.(compatibility.MutableEffectiveVersion)
	if !ok {
		return fmt.Errorf("the version of CEL expressions cannot be set: it is a %T", kube)
	}
	v.SetMinCompatibilityVersion(r.version().SubtractMinor(1))
	return nil
}

// effective returns the libraries' own version. The library's constructor allows the
// emulation of the last three releases only; this one allows every release.
func effective() compatibility.MutableEffectiveVersion {
	return compatibility.NewEffectiveVersionFromString(baseversion.DefaultKubeBinaryVersion, "1.0", "1.0")
}

// public is an effective version whose /version is that of a release.
type public struct {
	compatibility.EffectiveVersion
	info apimachineryversion.Info
}

// Info implements compatibility.EffectiveVersion.
func (p public) Info() *apimachineryversion.Info {
	info := p.info
	return &info
}

// info returns the content of /version. Commit and date come from the build
// information of go build, and are empty for a build outside a checkout.
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
