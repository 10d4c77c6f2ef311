package apiserver_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"svc.dev/svc/apiserver"
	"svc.dev/svc/apiserver/options"
)

// fileFlag is a flag that names a file.
type fileFlag struct {
	// with are the flags without which it has no effect. In them and in value, BAD is
	// the file, GOOD.crt and GOOD.key a pair.
	with, value string
	// lines reports whether the error of a malformed file names the line.
	lines bool
	// mayBeEmpty reports whether an empty file is valid.
	mayBeEmpty bool
}

// fileFlags are all flags that name a file that is read.
var fileFlags = map[string]fileFlag{
	"admission-control-config-file":            {lines: true},
	"audit-policy-file":                        {lines: true},
	"audit-webhook-config-file":                {with: "--audit-policy-file=GOOD.policy", lines: true},
	"authentication-config":                    {lines: true},
	"authentication-token-webhook-config-file": {lines: true},
	"authorization-config":                     {lines: true},
	"authorization-policy-file":                {with: "--authorization-mode=ABAC", lines: true, mayBeEmpty: true},
	"authorization-webhook-config-file":        {with: "--authorization-mode=Webhook", lines: true},
	"client-ca-file":                           {},
	"encryption-provider-config":               {lines: true},
	"etcd-cafile":                              {with: "--etcd-servers=https://127.0.0.1:1"},
	"etcd-certfile":                            {with: "--etcd-servers=https://127.0.0.1:1 --etcd-keyfile=GOOD.key"},
	"etcd-keyfile":                             {with: "--etcd-servers=https://127.0.0.1:1 --etcd-certfile=GOOD.crt"},
	"host-kubeconfig":                          {with: "--group-domain=svc.dev", lines: true},
	"oidc-ca-file":                             {with: "--oidc-issuer-url=https://issuer --oidc-client-id=c"},
	"proxy-client-cert-file":                   {with: "--proxy-client-key-file=GOOD.key"},
	"proxy-client-key-file":                    {with: "--proxy-client-cert-file=GOOD.crt"},
	"requestheader-client-ca-file":             {},
	"service-account-key-file":                 {},
	"service-account-signing-key-file":         {with: "--service-account-issuer=https://issuer --service-account-key-file=GOOD.key"},
	"svclet-certificate-authority":             {},
	"svclet-client-certificate":                {with: "--svclet-client-key=GOOD.key"},
	"svclet-client-key":                        {with: "--svclet-client-certificate=GOOD.crt"},
	"tls-cert-file":                            {with: "--tls-private-key-file=GOOD.key"},
	"tls-private-key-file":                     {with: "--tls-cert-file=GOOD.crt"},
	"tls-sni-cert-key":                         {value: "BAD,GOOD.key"},
	"token-auth-file":                          {lines: true, mayBeEmpty: true},
	"tracing-config-file":                      {lines: true},
}

// noFiles are the flags whose names look as if they named a file that is read.
var noFiles = []string{"cert-dir", "audit-log-path", "runtime-config", "encryption-provider-config-automatic-reload", "service-account-lookup", "tls-cipher-suites"}

// flagSet returns the flags that set o.
func flagSet(o *options.Options) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.SetOutput(io.Discard)
	for _, set := range o.Flags().FlagSets {
		all.AddFlagSet(set)
	}
	return all
}

func TestEveryFlagOfAFileIsInTheTable(t *testing.T) {
	flagSet(options.New()).VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" || f.Value.Type() == "int" || f.Value.Type() == "duration" {
			return
		}
		named := false
		for _, part := range []string{"file", "config", "-cert", "certificate-authority", "client-key", "key-file"} {
			named = named || strings.Contains(f.Name, part)
		}
		_, listed := fileFlags[f.Name]
		for _, other := range noFiles {
			listed = listed || other == f.Name
		}
		if named && !listed {
			t.Errorf("--%s names a file: add it to the table", f.Name)
		}
	})
}

// TestABadFileGivesOneLineThatNamesFlagAndFile starts servers with each flag of a file, and
// each way in which the file can be bad.
func TestABadFileGivesOneLineThatNamesFlagAndFile(t *testing.T) {
	dir := t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("server", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"good.crt": string(certificate), "good.key": string(key), "good.policy": auditPolicy,
		"malformed": "a: [b,\nc: \"d\n", "empty": "", "binary": "\x00\xff\xfe\x00", "other.key": string(other),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for flag, f := range fileFlags {
		for _, bad := range []string{"missing", "", "malformed", "empty", "binary", "good.policy", "other.key"} {
			isKey := strings.HasSuffix(f.with, "GOOD.crt") // which the other key does not match
			if bad == "empty" && f.mayBeEmpty || bad == "good.policy" && flag == "audit-policy-file" || bad == "other.key" && !isKey {
				continue
			}
			file := filepath.Join(dir, bad)
			t.Run(flag+"="+bad, func(t *testing.T) {
				replace := strings.NewReplacer("BAD", file, "GOOD", filepath.Join(dir, "good"))
				value := f.value
				if value == "" {
					value = "BAD"
				}
				args := append(strings.Fields(replace.Replace(f.with)), "--"+flag+"="+replace.Replace(value))
				err := startWith(t, args)
				if err == nil {
					t.Fatalf("%v: the file was accepted", args)
				}
				message := err.Error()
				for _, want := range []string{"--" + flag, file} {
					if !strings.Contains(message, want) {
						t.Errorf("%s\ndoes not name %s", message, want)
					}
				}
				if strings.Contains(message, "\n") {
					t.Errorf("the error has several lines: %s", message)
				}
				if bad == "malformed" && f.lines && !strings.Contains(message, "line ") && !strings.Contains(message, file+":1: ") {
					t.Errorf("%s\ndoes not name the line", message)
				}
			})
		}
	}
}

// startWith returns the error of a server with flags that must not start.
func startWith(t *testing.T, args []string) error {
	t.Helper()
	o := options.New()
	var err error
	if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer o.SecureServing.Listener.Close()
	if err := flagSet(o).Parse(append([]string{"--cert-dir=" + t.TempDir()}, args...)); err != nil {
		return err
	}
	if len(o.Etcd.Servers) == 0 {
		o.Etcd.Servers = []string{"http://127.0.0.1:1"}
	}
	if errs := o.Validate(); len(errs) > 0 {
		if len(errs) > 1 {
			t.Errorf("%d errors: %v", len(errs), errs)
		}
		return errs[0]
	}
	_, err = apiserver.New(o)
	return err
}

func TestAWrongFieldOfAConfigurationFileIsNamedWithItsLine(t *testing.T) {
	const admission = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, test := range []struct{ name, flag, content, want string }{
		{"absent in an audit policy", "audit-policy-file", // an unknown one is a warning, as it is for Kubernetes
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- levels: None\n", `line 5: rules[1].level: Required value`},
		{"invalid in an audit policy", "audit-policy-file",
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- level: Loud\n", `line 5: rules[1].level: Unsupported value: "Loud"`},
		{"of another type in an audit policy", "audit-policy-file",
			"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- level: None\n  users: bob\n", `line 6: json: cannot unmarshal string`},
		{"unknown in an authentication configuration", "authentication-config",
			"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    uri: x\n", `line 5: unknown field "jwt[0].issuer.uri"`},
		{"invalid in an authentication configuration", "authentication-config",
			"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: http://x\n    audiences: [a]\n  claimMappings:\n    username: {claim: sub, prefix: ''}\n",
			`line 5: jwt[0].issuer.url: Invalid value: "http://x"`},
		{"absent in an authorization configuration", "authorization-config",
			"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n  name: rbac\n- type: Node\n", "line 6: authorizers[1].name: Required value"},
		{"invalid in an authorization configuration", "authorization-config",
			"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- name: a\n  type: Magic\n", `line 5: authorizers[0].type: Unsupported value: "Magic"`},
		{"invalid in an encryption configuration", "encryption-provider-config",
			"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc:\n      keys:\n      - name: a\n        secret: '!'\n",
			"line 9: resources[0].providers[0].aescbc.keys[0].secret: Invalid value"},
		{"unknown in an admission configuration", "admission-control-config-file",
			admission + "- name: EventRateLimit\n  file: x\n", `line 5: unknown field "plugins[0].file"`},
		{"a file that an admission configuration names", "admission-control-config-file",
			admission + "- name: PodSecurity\n  path: nowhere.yaml\n", "line 5: plugins[0].path: open "},
		{"unknown in the configuration of an admission plugin", "admission-control-config-file",
			admission + "- name: PodNodeSelector\n- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults: {}\n    exempt: {}\n",
			`line 10: unknown field "exempt"`},
		{"invalid in the configuration of an admission plugin", "admission-control-config-file",
			admission + "- name: EventRateLimit\n  configuration:\n    apiVersion: eventratelimit.admission.k8s.io/v1alpha1\n    kind: Configuration\n    limits:\n    - type: Server\n      qps: 0\n      burst: 1\n",
			"line 10: limits[0].qps: Invalid value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--" + test.flag + "=" + file}
			if test.flag == "admission-control-config-file" {
				args = append(args, "--enable-admission-plugins=EventRateLimit,PodNodeSelector")
			}
			err := startWith(t, args)
			if err == nil {
				t.Fatal("the file was accepted")
			}
			for _, want := range []string{"--" + test.flag, file, test.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s\ndoes not name %s", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %s", err)
			}
		})
	}
}
