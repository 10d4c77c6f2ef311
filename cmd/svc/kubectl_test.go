package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"svc.dev/svc/cmd/svc/translations"
	"svc.dev/svc/internal/datadir"
)

func TestKubectlsTranslationsAreNotLoadedByItsInitialization(t *testing.T) {
	if err := translations.Set; err != nil {
		t.Errorf("a package of kubectl was initialized before: %v", err)
	}
}

func TestKubectlTalksToTheLastStartedUpUnlessToldOtherwise(t *testing.T) {
	place := func(t *testing.T, dir string, running bool) string {
		t.Helper()
		lock, err := datadir.Dir(dir).Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Close() })
		if !running {
			lock.Close()
		}
		if err := os.WriteFile(datadir.Dir(dir).AdminFile(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return datadir.Dir(dir).AdminFile()
	}
	for _, tc := range []struct {
		name                          string
		args                          []string
		given                         string
		own, other                    bool // there is a file of svc up on the default directory, on another one
		ownRuns, otherRuns, published bool
		want                          string // own, other or absent; empty is what the user gave
	}{
		{name: "what is not there when svc up has never run, and no other cluster", want: "absent"},
		{name: "nor when it ran on another directory and was stopped", other: true, want: "absent"},
		{name: "what runs on the default directory", own: true, ownRuns: true, want: "own"},
		{name: "what runs on another directory", other: true, otherRuns: true, published: true, want: "other"},
		{name: "the last started of two", own: true, ownRuns: true, other: true, otherRuns: true, published: true, want: "other"},
		{name: "what runs rather than what was killed", own: true, ownRuns: true, other: true, published: true, want: "own"},
		{name: "what was killed when nothing runs", own: true, other: true, published: true, want: "other"},
		{name: "what was stopped when nothing runs", own: true, other: true, want: "own"},
		{name: "KUBECONFIG", given: "mine", own: true, ownRuns: true},
		{name: "--kubeconfig FILE", args: []string{"get", "pods", "--kubeconfig", "x"}, own: true, ownRuns: true},
		{name: "--kubeconfig=FILE", args: []string{"--kubeconfig=x", "get", "pods"}, own: true, ownRuns: true},
		{name: "what runs if only the program in a container gets a --kubeconfig", args: []string{"run", "p", "--image=i", "--", "--kubeconfig=x"}, own: true, ownRuns: true, want: "own"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			env := map[string]string{
				"XDG_DATA_HOME":   filepath.Join(root, "share"),
				"XDG_RUNTIME_DIR": filepath.Join(root, "run"),
				"KUBECONFIG":      tc.given,
			}
			u := datadir.User{ID: 1000, Env: func(name string) string { return env[name] }}
			want := tc.want
			if want == "absent" {
				want = filepath.Join(root, "share", "svc", "admin.svcconfig")
			}
			if tc.own {
				if file := place(t, filepath.Join(root, "share", "svc"), tc.ownRuns); want == "own" {
					want = file
				}
			}
			if tc.other {
				file := place(t, filepath.Join(root, "other"), tc.otherRuns)
				if want == "other" {
					want = file
				}
				withdraw, err := u.Publish(file)
				if err != nil {
					t.Fatal(err)
				}
				if !tc.published {
					withdraw()
				}
			}
			got, exists := kubeconfigFor(u, tc.args)
			if got != want || exists != (want != "" && tc.want != "absent") {
				t.Errorf("got %q (exists: %v), want %q", got, exists, want)
			}
		})
	}
}

func TestWithoutHomeThereIsNoDefaultCluster(t *testing.T) {
	for _, c := range []struct {
		id   int
		env  map[string]string
		args []string
		want bool
	}{
		{id: 1000, want: true},
		{id: 1000, env: map[string]string{"HOME": "/home/me"}},
		{id: 1000, env: map[string]string{"KUBECONFIG": "mine"}},
		{id: 1000, args: []string{"--kubeconfig=mine"}},
		{id: 0},
	} {
		u := datadir.User{ID: c.id, Env: func(name string) string { return c.env[name] }}
		if got := noDefault(u, c.args); got != c.want {
			t.Errorf("user %d, %v, %q: %v", c.id, c.env, c.args, got)
		}
	}
	if got, want := unreachable("", false), "there is no default cluster without HOME"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestKubectlWithoutAClusterSendsNoRequest(t *testing.T) {
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig = ptr.To("/dev/null")
	wrap := withoutDefaultServer(flags, func() string { return "start svc up" })
	flags.WrapConfigFn = wrap
	discovery, err := flags.ToDiscoveryClient()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := discovery.ServerVersion(); err == nil || !strings.HasSuffix(err.Error(), "start svc up") {
		t.Errorf("a request without a kubeconfig: %v", err)
	}
	if c := wrap(&rest.Config{Host: "http://localhost:8081"}); c.Dial != nil {
		t.Error("requests to a server that the user has named fail")
	}
}

func TestKubectlSendsRequestsToTheDefaultServerIfTheUserNamesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"clusters":[{"name":"h","cluster":{"server":"http://localhost:8080"}}],"contexts":[{"name":"c","context":{"cluster":"h"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	byKubeconfig, byServer := genericclioptions.NewConfigFlags(true), genericclioptions.NewConfigFlags(true)
	byKubeconfig.KubeConfig = &file
	byServer.KubeConfig, byServer.APIServer = ptr.To("/dev/null"), ptr.To("http://localhost:8080")
	for name, flags := range map[string]*genericclioptions.ConfigFlags{"--kubeconfig": byKubeconfig, "--server": byServer} {
		flags.WrapConfigFn = withoutDefaultServer(flags, func() string { return "start svc up" })
		if c, err := flags.ToRESTConfig(); err != nil || c.Host != defaultServer || c.Dial != nil {
			t.Errorf("%s: %v, %v: its requests fail", name, c, err)
		}
	}
}

func TestAMissingClusterIsExplainedByWhatNamesIt(t *testing.T) {
	const file = "/home/me/.local/share/svc/admin.svcconfig"
	for _, c := range []struct {
		name        string
		args        []string
		named, file string
		want        string
	}{
		{"the default, which is not there", nil, "", file, file + ` does not exist: start "svc up", or name a cluster by --kubeconfig or KUBECONFIG`},
		{"KUBECONFIG", nil, "mine", "", "KUBECONFIG: mine does not exist or names no server: correct the path, or unset KUBECONFIG to use your svc up"},
		{"--kubeconfig", []string{"get", "pods", "--kubeconfig=mine"}, "other", "", "--kubeconfig: the file names no server: name that of a cluster, or a server by --server"},
		{"nothing, without HOME", nil, "", "", `there is no default cluster without HOME: start "svc up", or name a cluster by --kubeconfig or KUBECONFIG`},
	} {
		if got := clusterHint(c.args, c.named, c.file, false); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

func TestKubectlDoesNotRepeatThatAServerDoesNotAnswer(t *testing.T) {
	var handled []error
	handle := unlessUnreachable(func(_ context.Context, err error, _ string, _ ...any) { handled = append(handled, err) })
	other := errors.New("the server is currently unable to handle the request")
	for _, err := range []error{
		fmt.Errorf("get: %w", syscall.ECONNREFUSED),
		fmt.Errorf("get: %w", noCluster("start svc up")),
		other,
	} {
		handle(t.Context(), err, "")
	}
	if len(handled) != 1 || !errors.Is(handled[0], other) {
		t.Errorf("logged %v", handled)
	}
}

func TestTheBuiltInKubectlDoesNotWarnOfAnotherMinorVersion(t *testing.T) {
	var out strings.Builder
	for _, line := range []string{
		"Warning: version difference between client (1.37) and server (1.28) exceeds the supported minor version skew of +/-1\n",
		"error: another\n",
	} {
		if n, err := (withoutSkew{&out}).Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: wrote %d, %v", line, n, err)
		}
	}
	if out.String() != "error: another\n" {
		t.Errorf("got %q", out.String())
	}
}

func TestKubectlSaysWhatReplacesRemovedKinds(t *testing.T) {
	const message = `resource mapping not found for name: "a" namespace: "" from "a.yaml": no matches for kind "Ingress" in version "extensions/v1beta1"
ensure CRDs are installed first
no matches for kind "Ingress" in version "extensions/v1beta1"
no matches for kind "Thing" in version "example.com/v1"`
	got := removedKinds(message)
	if len(got) != 1 || !strings.Contains(got[0], "use networking.k8s.io/v1; \"svc convert\"") {
		t.Errorf("%q", got)
	}
	if got := removedKinds("another error"); got != nil {
		t.Errorf("%q", got)
	}
}
