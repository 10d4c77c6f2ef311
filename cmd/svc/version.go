package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	etcdversion "go.etcd.io/etcd/api/v3/version"

	"svc.dev/svc/apiserver/release"
)

// versions is what `svc version -o json` prints.
type versions struct {
	SVC      string `json:"svc"`
	Release  string `json:"release"`
	Oldest   string `json:"oldestRelease"`
	Newest   string `json:"newestRelease"`
	Etcd     string `json:"etcd"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func currentVersions() versions {
	return versions{
		SVC:      release.SVCVersion(),
		Release:  release.Default.String(),
		Oldest:   release.Oldest.String(),
		Newest:   release.Newest.String(),
		Etcd:     etcdversion.Version,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// line is what `svc version` and `svc --version` print.
func (v versions) line() string {
	return fmt.Sprintf("svc %s (API of Kubernetes %s, or --release=%s to %s; etcd %s, %s, %s)", v.SVC, v.Release, v.Oldest, v.Newest, v.Etcd, v.Go, v.Platform)
}

func newVersion() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of svc and of what it is made of",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := currentVersions()
			switch output {
			case "":
				fmt.Fprintln(cmd.OutOrStdout(), v.line())
				return nil
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(v)
			}
			return usageError{fmt.Errorf("--output: %q is not json; leave the flag out for text", output), cmd}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Print as json.")
	return cmd
}
