package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
)

// release is the release of kubelet that svclet behaves as, and reports.
const release = "v1.36.0"

// reportVersion is the version to report. If --version asks for it, it has been
// written.
func reportVersion(flag string, out io.Writer) (reported string, answered bool, err error) {
	switch flag {
	case "true":
		_, err = fmt.Fprintf(out, "svclet %s\n", release)
		return release, true, err
	case "raw":
		_, err = fmt.Fprintf(out, "%#v\n", info())
		return release, true, err
	case "", "false":
		return release, false, nil
	}
	if _, err := utilversion.ParseSemantic(flag); err != nil || !strings.HasPrefix(flag, "v") {
		return "", false, fmt.Errorf("--version: %q is not true, raw or the release to report, as %s", flag, release)
	}
	return flag, false, nil
}

// info is all there is to know of the binary.
func info() version.Info {
	major, minor, _ := strings.Cut(strings.TrimPrefix(release, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	i := version.Info{
		Major: major, Minor: minor, GitVersion: release,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, _ := debug.ReadBuildInfo()
	if build == nil {
		return i
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			i.GitCommit = setting.Value
		case "vcs.time":
			i.BuildDate = setting.Value
		case "vcs.modified":
			i.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[setting.Value]
		}
	}
	return i
}
