// Package skew tries kubectl of old and new releases with `svc up` at several releases,
// and compares what works with the table in docs/releases.md. It needs the programs that
// `hack/peers.sh kubectl-1.20 kubectl-1.28` builds; the newest kubectl is in svc.
package skew

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/test/launch"
)

// table is where the table is: between the lines that are begin and end.
const (
	table = "../../../docs/releases.md"
	begin = "<!-- kubectl: test/peers/skew -->"
	end   = "<!-- end of kubectl -->"
)

// servers are the releases that are tried.
var servers = []string{"1.16", "1.22", "1.28", "1.33", "1.37"}

// kubectl is a client and how it is called.
type kubectl struct {
	release string
	command []string
}

// clients returns the three clients.
func clients(t *testing.T) []kubectl {
	t.Helper()
	var all []kubectl
	for _, release := range []string{"1.20", "1.28"} {
		program, err := launch.Peer("kubectl-" + release)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, kubectl{release, []string{program}})
	}
	svc, err := launch.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return append(all, kubectl{"1.37", []string{svc, "kubectl"}})
}

const manifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: skew, labels: {app: skew}}
data: {a: b}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: skew, labels: {app: skew}}
spec:
  replicas: 0
  selector: {matchLabels: {app: skew}}
  template:
    metadata: {labels: {app: skew}}
    spec: {containers: [{name: c, image: example.com/a:1}]}
---
apiVersion: v1
kind: Service
metadata: {name: skew, labels: {app: skew}}
spec: {selector: {app: skew}, ports: [{port: 80}]}
`

// command is a kubectl command, and what its output has to contain. $FILE is the manifest.
type command struct {
	name, line, want string
	// code is the exit code.
	code int
}

// commands are executed in this order; a name may have several.
var commands = []command{
	{name: "version", line: "version -o json", want: `"serverVersion"`},
	{name: "api-resources", line: "api-resources", want: "deployments"},
	{name: "create", line: "create configmap other --from-literal=a=b", want: "created"},
	{name: "apply", line: "apply -f $FILE", want: "deployment.apps/skew created"},
	{name: "apply", line: "apply -f $FILE", want: "deployment.apps/skew unchanged"},
	{name: "apply --server-side", line: "apply --server-side --force-conflicts -f $FILE", want: "serverside-applied"},
	{name: "get", line: "get deployments,services,configmaps -l app=skew", want: "deployment.apps/skew"},
	{name: "get", line: "get deployment skew -o yaml", want: "name: skew"},
	{name: "describe", line: "describe deployment skew", want: "example.com/a:1"},
	{name: "describe", line: "describe service skew", want: "app=skew"},
	{name: "explain", line: "explain deployment.spec.replicas", want: "replicas"},
	{name: "diff", line: "diff -f $FILE"},
	{name: "diff", line: "diff -f $CHANGED", want: "+  a: c", code: 1},
	{name: "patch", line: `patch configmap skew -p {"data":{"x":"y"}}`, want: "patched"},
	{name: "label", line: "label configmap skew tier=a", want: "labeled"},
	{name: "set image", line: "set image deployment/skew c=example.com/a:2", want: "image updated"},
	{name: "rollout status", line: "rollout status deployment/skew --timeout=60s", want: "successfully rolled out"},
	{name: "rollout", line: "rollout history deployment/skew", want: "REVISION"},
	{name: "rollout", line: "rollout undo deployment/skew", want: "rolled back"},
	{name: "scale", line: "scale deployment skew --replicas=1", want: "scaled"},
	{name: "autoscale", line: "autoscale deployment skew --max=3", want: "autoscaled"},
	{name: "expose", line: "expose deployment skew --port=81 --name=exposed", want: "exposed"},
	{name: "wait", line: "wait deployment/skew --for=condition=Progressing --timeout=60s", want: "condition met"},
	{name: "auth can-i", line: "auth can-i list pods", want: "yes"},
	{name: "delete", line: "delete -f $FILE --wait=true --timeout=60s", want: `"skew" deleted`},
	{name: "delete", line: "delete hpa,service,configmap --all --timeout=60s", want: "deleted"},
}

func TestKubectlOfOtherReleases(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("a comparison, by hand: hack/peers.sh kubectl-1.20 kubectl-1.28; SVC=$PWD/bin/svc go test -v -timeout 30m ./test/peers/skew")
	}
	kubectls := clients(t)
	var got strings.Builder
	fmt.Fprint(&got, "| server |")
	for _, k := range kubectls {
		fmt.Fprintf(&got, " kubectl %s |", k.release)
	}
	fmt.Fprintf(&got, "\n|---|%s\n", strings.Repeat("---|", len(kubectls)))
	rows := make([]string, len(servers))
	t.Run("servers", func(t *testing.T) {
		for i, release := range servers {
			t.Run(release, func(t *testing.T) {
				t.Parallel()
				s, err := launch.Up(t.Context(), t.TempDir(), "--release="+release, "--controllers=*,-localpathprovisioner")
				if err != nil {
					t.Fatal(err)
				}
				defer s.Kill()
				rows[i] = "| " + release + " |"
				for _, k := range kubectls {
					rows[i] += " " + k.try(t, s, release) + " |"
				}
			})
		}
	})
	got.WriteString(strings.Join(rows, "\n") + "\n")
	page, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), begin+"\n")
	want, _, _ := strings.Cut(rest, end)
	if got.String() != want {
		t.Errorf("the table in docs/releases.md should be\n%s", &got)
	}
}

// try executes all commands, and returns what does not work, or that everything does.
func (k kubectl) try(t *testing.T, s *launch.Server, release string) string {
	t.Helper()
	dir := t.TempDir()
	file, changed := filepath.Join(dir, "all.yaml"), filepath.Join(dir, "changed.yaml")
	for name, content := range map[string]string{file: manifest, changed: strings.Replace(manifest, "data: {a: b}", "data: {a: c}", 1)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var failed []string
	for _, c := range commands {
		line := strings.NewReplacer("$FILE", file, "$CHANGED", changed).Replace(c.line)
		code, out := k.run(t.Context(), s, dir, strings.Fields(line))
		if code == c.code && strings.Contains(out, c.want) {
			continue
		}
		t.Logf("kubectl %s at %s: %s: exit code %d\n%s", k.release, release, c.line, code, out)
		if name := "`" + c.name + "`"; len(failed) == 0 || failed[len(failed)-1] != name {
			failed = append(failed, name)
		}
	}
	if len(failed) == 0 {
		return "all"
	}
	return "all but " + strings.Join(failed, ", ")
}

// run runs a command with an empty home directory.
func (k kubectl) run(ctx context.Context, s *launch.Server, home string, line []string) (code int, out string) {
	cmd := exec.CommandContext(ctx, k.command[0], append(append([]string{}, k.command[1:]...), line...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "SVCCONFIG="+s.Kubeconfig, "HOME="+home)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return -1, err.Error()
	}
	return cmd.ProcessState.ExitCode(), output.String()
}
