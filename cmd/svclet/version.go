package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"

	"svc.dev/svc/svclet/config"
)

// reportVersion returns the version that the agent reports. With --version it writes
// it, and reports that the request is answered.
func reportVersion(flag string, out io.Writer) (reported string, answered bool, err error) {
	switch flag {
	case "true":
		_, err = fmt.Fprintf(out, "svclet %s\n", config.Release)
		return config.Release, true, err
	case "raw":
		_, err = fmt.Fprintf(out, "%#v\n", info())
		return config.Release, true, err
	case "", "false":
		return config.Release, false, nil
	}
	if _, err := utilversion.ParseSemantic(flag); err != nil || !strings.HasPrefix(flag, "v") {
		return "", false, fmt.Errorf("--version: %q is not true, raw or the release to report, as %s", flag, config.Release)
	}
	return flag, false, nil
}

// info is the information of --version=raw.
func info() version.Info {
	major, minor, _ := strings.Cut(strings.TrimPrefix(config.Release, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	i := version.Info{
		Major: major, Minor: minor, GitVersion: config.Release,
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
