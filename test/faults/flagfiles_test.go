package faults

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"svc.dev/svc/apiserver/pki"
)

// fileFlag is a flag of a command that names a file.
type fileFlag struct {
	name string
	// with are the flags without which it has no effect; PKI is the directory of good files.
	with string
	// lines reports whether the error of a malformed file names the line.
	lines bool
}

// fileFlags are the flags that name a file that is read, by their commands.
var fileFlags = map[string][]fileFlag{
	"apiserver": {
		{name: "admission-control-config-file", lines: true},
		{name: "audit-policy-file", lines: true},
		{name: "audit-webhook-config-file", with: "--audit-policy-file=PKI/policy.yaml", lines: true},
		{name: "authentication-config", lines: true},
		{name: "authentication-token-webhook-config-file", lines: true},
		{name: "authorization-config", lines: true},
		{name: "authorization-policy-file", with: "--authorization-mode=ABAC", lines: true},
		{name: "authorization-webhook-config-file", with: "--authorization-mode=Webhook", lines: true},
		{name: "client-ca-file"},
		{name: "encryption-provider-config", lines: true},
		{name: "etcd-cafile"},
		{name: "etcd-certfile", with: "--etcd-keyfile=PKI/admin.key"},
		{name: "etcd-keyfile", with: "--etcd-certfile=PKI/admin.crt"},
		{name: "host-kubeconfig", with: "--group-domain=svc.example.com", lines: true},
		{name: "oidc-ca-file", with: "--oidc-issuer-url=https://issuer --oidc-client-id=c"},
		{name: "proxy-client-cert-file", with: "--proxy-client-key-file=PKI/admin.key"},
		{name: "proxy-client-key-file", with: "--proxy-client-cert-file=PKI/admin.crt"},
		{name: "requestheader-client-ca-file"},
		{name: "service-account-key-file"},
		{name: "service-account-signing-key-file", with: "--service-account-issuer=https://issuer --service-account-key-file=PKI/sa.pub"},
		{name: "svclet-certificate-authority"},
		{name: "svclet-client-certificate", with: "--svclet-client-key=PKI/admin.key"},
		{name: "svclet-client-key", with: "--svclet-client-certificate=PKI/admin.crt"},
		{name: "tls-cert-file", with: "--tls-private-key-file=PKI/apiserver.key"},
		{name: "tls-private-key-file", with: "--tls-cert-file=PKI/apiserver.crt"},
		{name: "token-auth-file", lines: true},
	},
	"controller-manager": {
		{name: "authentication-kubeconfig", lines: true},
		{name: "authorization-kubeconfig", lines: true},
		{name: "client-ca-file"},
		{name: "cluster-signing-cert-file", with: "--cluster-signing-key-file=PKI/ca.key"},
		{name: "cluster-signing-key-file", with: "--cluster-signing-cert-file=PKI/ca.crt"},
		{name: "cluster-signing-kubelet-client-cert-file", with: "--cluster-signing-kubelet-client-key-file=PKI/ca.key"},
		{name: "cluster-signing-kubelet-client-key-file", with: "--cluster-signing-kubelet-client-cert-file=PKI/ca.crt"},
		{name: "requestheader-client-ca-file"},
		{name: "root-ca-file"},
		{name: "scheduler-config", lines: true},
		{name: "service-account-private-key-file"},
		{name: "tls-cert-file", with: "--tls-private-key-file=PKI/apiserver.key"},
		{name: "tls-private-key-file", with: "--tls-cert-file=PKI/apiserver.crt"},
	},
}

// needs are the flags without which a command does not start. Each run has an address of its
// own for its port.
var needs = map[string]string{
	"apiserver":          "--etcd-servers=https://127.0.0.1:1 --cert-dir=PKI/made --bind-address=ADDRESS",
	"controller-manager": "--svcconfig=PKI/svcconfig --cert-dir=PKI/made --bind-address=ADDRESS",
}

// goodFiles makes the files that flags name beside the bad one, and the bad ones.
func goodFiles(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	dir := tempDir(t)
	_, err := pki.Open(pki.Config{Dir: dir, ServiceIPs: []net.IP{net.IPv4(10, 96, 0, 1)}})
	g.Expect(err).NotTo(HaveOccurred())
	for name, content := range map[string]string{
		"policy.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n",
		"malformed":   "a: [b,\nc: \"d\n",
		"svcconfig": `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`,
	} {
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
	}
	return dir
}

// TestABadFileOfAFlagEndsTheProgramWithOneLine runs the program with each flag of a file, and
// with files that are missing, unreadable and malformed.
func TestABadFileOfAFlagEndsTheProgramWithOneLine(t *testing.T) {
	dir := goodFiles(t)
	runs := 0
	for command, flags := range fileFlags {
		for _, f := range flags {
			for _, bad := range []string{"missing", "", "malformed"} { // "" is the directory
				file := filepath.Join(dir, bad)
				runs++
				args := arguments(command, dir, runs, f.with+" --"+f.name+"="+file)
				t.Run(command+" --"+f.name+"="+bad, func(t *testing.T) {
					t.Parallel()
					line := onlyLine(t, args)
					g := NewWithT(t)
					g.Expect(line).To(And(HavePrefix("svc "+command+": "), ContainSubstring("--"+f.name), ContainSubstring(file)))
					if bad == "malformed" && f.lines {
						g.Expect(line).To(Or(ContainSubstring("line "), ContainSubstring(file+":1: ")))
					}
				})
			}
		}
	}
}

// arguments returns the command line of a run, whose number is that of its address.
func arguments(command, dir string, number int, flags string) []string {
	replace := strings.NewReplacer("PKI", dir, "ADDRESS", fmt.Sprintf("127.0.%d.%d", 1+number/250, 1+number%250))
	return append([]string{command}, strings.Fields(replace.Replace(needs[command]+" "+flags))...)
}

// onlyLine runs the program, which must fail and print one line, and returns the line.
func onlyLine(t *testing.T, args []string) string {
	t.Helper()
	code, output := run(t, args...)
	g := NewWithT(t)
	g.Expect(code).To(Equal(1), output)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	g.Expect(lines).To(HaveLen(1))
	return lines[0]
}

func TestContradictionsBetweenFilesEndTheProgramWithOneLine(t *testing.T) {
	dir := goodFiles(t)
	for i, test := range []struct{ rule, command, flags, want string }{
		{"a key of another certificate", "apiserver", "--tls-cert-file=PKI/apiserver.crt --tls-private-key-file=PKI/admin.key",
			"--tls-cert-file and --tls-private-key-file: PKI/apiserver.crt and PKI/admin.key: tls: private key does not match public key; name PEM files of a certificate and of its key"},
		{"a certificate without its key", "apiserver", "--proxy-client-cert-file=PKI/admin.crt", "--proxy-client-cert-file and --proxy-client-key-file: set both or none"},
		{"an authority as a key", "apiserver", "--service-account-issuer=https://a --service-account-key-file=PKI/sa.pub --service-account-signing-key-file=PKI/ca.crt",
			"--service-account-signing-key-file: "},
		{"a server that would refuse its own tokens", "apiserver",
			"--service-account-issuer=https://a --service-account-key-file=PKI/sa.pub --service-account-signing-key-file=PKI/ca.key",
			"--service-account-key-file: no file has the public key of --service-account-signing-key-file PKI/ca.key, so the server would refuse its own tokens; name that file here, too"},
		{"authorizers of a file and of flags", "apiserver", "--authorization-config=PKI/policy.yaml --authorization-mode=RBAC",
			"--authorization-config: excludes --authorization-mode, --authorization-policy-file and --authorization-webhook-config-file, describe all authorizers in the file"},
		{"policies without their mode", "apiserver", "--authorization-policy-file=PKI/policy.yaml", "--authorization-policy-file: has no effect without --authorization-mode=ABAC; set both"},
		{"a mode without its policies", "apiserver", "--authorization-mode=ABAC", `--authorization-mode: mode "ABAC" needs --authorization-policy-file`},
		{"issuers of a file and of flags", "apiserver", "--authentication-config=PKI/policy.yaml --oidc-client-id=c",
			"--authentication-config and --oidc-*: use one of them; the issuer of the flags can be in the file"},
		{"a webhook of the audit without a policy", "apiserver", "--audit-webhook-config-file=PKI/svcconfig",
			"--audit-webhook-config-file: has no effect without --audit-policy-file; set both"},
		{"a policy of another kind", "apiserver", "--authentication-config=PKI/policy.yaml", "--authentication-config PKI/policy.yaml: "},
		{"an authority without its key", "controller-manager", "--cluster-signing-cert-file=PKI/ca.crt", "--cluster-signing-cert-file and --cluster-signing-key-file: set both or none"},
		{"an authority with another key", "controller-manager", "--cluster-signing-cert-file=PKI/ca.crt --cluster-signing-key-file=PKI/admin.key", "--cluster-signing-cert-file"},
	} {
		args := arguments(test.command, dir, 500+i, test.flags)
		t.Run(test.rule, func(t *testing.T) {
			t.Parallel()
			NewWithT(t).Expect(onlyLine(t, args)).To(HavePrefix("svc " + test.command + ": " + strings.ReplaceAll(test.want, "PKI", dir)))
		})
	}
}
