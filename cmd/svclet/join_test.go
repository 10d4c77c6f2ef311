package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/join"
)

func TestWrongArgumentsOfJoinAreRefused(t *testing.T) {
	const url, token, pin = "https://192.0.2.1:6443", "--token=abcdef.0123456789abcdef", "--ca-cert-hash=sha256:"
	hex := strings.Repeat("0", 64)
	for _, test := range []struct{ rule, args, want string }{
		{"a server is required", token + " " + pin + hex, "svclet join: name the API server, as https://HOST:6443\n"},
		{"the server is reached with TLS", "http://192.0.2.1 " + token + " " + pin + hex, `svclet join: invalid API server "http://192.0.2.1": must be a URL, as https://HOST:6443`},
		{"the token has two parts", url + " --token=abcdef " + pin + hex, "svclet join: --token: invalid token"},
		{"a hash is required", url + " " + token, "svclet join: --ca-cert-hash: give the hash"},
		{"a hash is of SHA-256", url + " " + token + " " + pin + "00", `svclet join: --ca-cert-hash: invalid hash "sha256:00": must be sha256: and 64 hexadecimal digits`},
		{"a hash is hexadecimal", url + " " + token + " " + pin + strings.Repeat("x", 64), "svclet join: --ca-cert-hash: invalid hash"},
		{"a misspelt flag", "--tokn=a", "svclet join: unknown flag: --tokn: did you mean --token?; see 'svclet join --help'"},
		{"a connection file names the server", url + " --svcconfig=/none", `svclet join: --svcconfig: the file names the API server; leave "https://192.0.2.1:6443" out`},
		{"a connection file names the fleet", "--svcconfig=/none --group-domain=svc.dev", "svclet join: --svcconfig: the file names the fleet; leave --group-domain out"},
		{"a domain is one", url + " " + token + " " + pin + hex + " --group-domain=Svc", `svclet join: --group-domain: invalid domain "Svc"`},
		{"a connection file needs no token", "--svcconfig=/none " + token, "svclet join: --svcconfig: excludes --token and --ca-cert-hash"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			code, out, errOut := svcletCommand(append([]string{"join", "--config-dir=" + t.TempDir()}, strings.Fields(test.args)...)...)
			if code != 1 || out != "" || !strings.HasPrefix(errOut, test.want) {
				t.Errorf("exits with %d and prints %q and %q", code, out, errOut)
			}
		})
	}
}

// connectionFile is one with which a machine can join.
const connectionFile = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

func TestAJoinWithABadFlagKeepsTheConfigurationFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can join")
	}
	files := join.Files{Dir: t.TempDir()}
	connection := filepath.Join(t.TempDir(), "connection")
	own := "apiVersion: svclet.config.k8s.io/v1beta1\nkind: SvcletConfiguration\nmaxPods: 5\n"
	for path, content := range map[string]string{files.Configuration(): own, connection: connectionFile} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, _, errOut := svcletCommand("join", "--svcconfig="+connection, "--config-dir="+files.Dir, "--root-dir="+t.TempDir(), "--", "--bogus")
	if code != 1 || !strings.Contains(errOut, "unknown flag --bogus") {
		t.Errorf("exits with %d: %q", code, errOut)
	}
	if kept, err := os.ReadFile(files.Configuration()); err != nil || string(kept) != own {
		t.Errorf("the configuration is %q, %v", kept, err)
	}
	if files.Joined() {
		t.Error("the machine counts as joined")
	}
}

// resettingOf returns the reset with the files of a join, and what it removes.
func resettingOf(t *testing.T, files join.Files, rootDir string) (*resetting, containerd.Leavings) {
	t.Helper()
	r, err := newResetting(files, systemd{}, rootDir, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	left, err := r.leavings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, left
}

func TestResetFindsWhatTheJoinConfigured(t *testing.T) {
	files := join.Files{Dir: t.TempDir()}
	const links = "/var/log/containers"
	root := t.TempDir()
	before, got := resettingOf(t, files, root)
	if got != (containerd.Leavings{Dir: root, LogsDir: "/var/log/pods", LinksDir: links, Cgroup: "/kubepods"}) || before.apart {
		t.Errorf("without a command line it removes %+v", got)
	}
	// A release that did not write the command line has joined.
	for file, content := range map[string]string{files.Connection(): "", files.Configuration(): "apiVersion: svclet.config.k8s.io/v1beta1\nkind: SvcletConfiguration\npodLogsDir: /data/logs\n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configured, got := resettingOf(t, files, root)
	if got.LogsDir != "/data/logs" || configured.apart {
		t.Errorf("without a command line it removes %+v, not the logs of the configuration file", got)
	}
	if got := configured.adviceAfterFailure(); got != "run it again, or restart the machine" {
		t.Errorf("it advises to %s", got)
	}
	args := []string{"--root-dir=/data/svclet", "--container-runtime-endpoint=unix:///run/c.sock", "--cgroup-driver=systemd", "--cgroup-root=/node"}
	if err := files.WriteArguments(args); err != nil {
		t.Fatal(err)
	}
	want := containerd.Leavings{Dir: "/data/svclet", LogsDir: "/var/log/pods", LinksDir: links, Endpoint: "unix:///run/c.sock", Cgroup: "/node.slice/node-kubepods.slice"}
	for _, rootDir := range []string{"", "/data/svclet/"} {
		joined, got := resettingOf(t, files, rootDir)
		if got != want || joined.apart {
			t.Errorf("it removes %+v, want %+v", got, want)
		}
		if got := joined.adviceAfterFailure(); !strings.Contains(got, "remove --container-runtime-endpoint from "+files.ArgumentsFile()) {
			t.Errorf("it advises to %s", got)
		}
	}
}

func TestResetFindsWhatASvcletWithoutAJoinHasRecorded(t *testing.T) {
	files, root := join.Files{Dir: t.TempDir()}, t.TempDir()
	recorded := containerd.Leavings{Dir: root, LogsDir: "/data/logs", LinksDir: "/var/log/containers", Endpoint: "unix:///run/c.sock", Cgroup: "/mine/kubepods"}
	if err := recorded.Record(); err != nil {
		t.Fatal(err)
	}
	alone, got := resettingOf(t, files, root)
	if got != recorded {
		t.Errorf("it removes %+v, want %+v", got, recorded)
	}
	if got := alone.adviceAfterFailure(); !strings.HasSuffix(got, "runtime at unix:///run/c.sock runs; if that is gone for good, remove "+filepath.Join(root, "reset.json")+" before") {
		t.Errorf("it advises to %s", got)
	}
	if err := files.WriteArguments([]string{"--root-dir=/data/svclet", "--cgroup-root=/node"}); err != nil {
		t.Fatal(err)
	}
	beside, got := resettingOf(t, files, root)
	if got != recorded || !beside.apart {
		t.Errorf("beside a join it removes %+v, and the join: %t", got, !beside.apart)
	}
	if err := os.WriteFile(filepath.Join(root, "reset.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := beside.leavings(t.Context()); err == nil || !strings.Contains(err.Error(), "reset.json is damaged: start svclet again") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestResetOfAnotherSvcletKeepsTheJoin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can reset")
	}
	files, root := join.Files{Dir: t.TempDir()}, t.TempDir()
	if err := files.WriteArguments([]string{"--root-dir=" + filepath.Join(files.Dir, "joined")}); err != nil {
		t.Fatal(err)
	}
	left := containerd.Leavings{Dir: root, LogsDir: filepath.Join(root, "logs"), LinksDir: filepath.Join(root, "links")}
	for _, err := range []error{os.WriteFile(filepath.Join(root, containerd.LockFile), nil, 0o600), left.Record()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	code, out, errOut := svcletCommand("reset", "--config-dir="+files.Dir, "--root-dir="+root)
	if code != 0 || errOut != "" {
		t.Errorf("exits with %d: %q, %q", code, out, errOut)
	}
	if args, err := files.ReadArguments(); err != nil || args == nil {
		t.Errorf("the command line of the join is gone: %v", err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the root directory is left: %v", err)
	}
}

func TestResetRefusesADirectoryThatDoesNotExist(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can reset")
	}
	dir := filepath.Join(t.TempDir(), "svclt")
	code, out, errOut := svcletCommand("reset", "--config-dir="+t.TempDir(), "--root-dir="+dir)
	want := "svclet reset: --root-dir: " + dir + " does not exist: name the directory that svclet was run with\n"
	if code != 1 || out != "" || errOut != want {
		t.Errorf("exits with %d: %q, %q, want %q", code, out, errOut, want)
	}
}

func TestResetRefusesADirectoryThatNoAgentHasUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can reset")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := svcletCommand("reset", "--config-dir="+t.TempDir(), "--root-dir="+dir)
	want := "svclet reset: --root-dir: " + dir + " is not the root directory of a svclet: it has no svclet.lock, and has precious; nothing has been changed\n"
	if code != 1 || out != "" || errOut != want {
		t.Errorf("exits with %d: %q, %q, want %q", code, out, errOut, want)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
