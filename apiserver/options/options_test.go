package options

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// parse makes options of command-line arguments.
func parse(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o := New()
	all := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	sets := o.Flags()
	for _, name := range sets.Order {
		all.AddFlagSet(sets.FlagSet(name))
	}
	return o, all.Parse(args)
}

func TestEveryFlagIsDocumentedAndInOneSet(t *testing.T) {
	seen := map[string]string{}
	sets := New().Flags()
	if len(sets.Order) < 9 {
		t.Fatalf("the sets are %v", sets.Order)
	}
	for _, name := range sets.Order {
		sets.FlagSet(name).VisitAll(func(f *pflag.Flag) {
			if other := seen[f.Name]; other != "" {
				t.Errorf("--%s is in %s and in %s", f.Name, other, name)
			}
			seen[f.Name] = name
			if len(f.Usage) < 20 {
				t.Errorf("--%s is documented by %q", f.Name, f.Usage)
			}
		})
	}
}

func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	sets := New().Flags()
	defaults := map[string]string{}
	for _, name := range sets.Order {
		sets.FlagSet(name).VisitAll(func(f *pflag.Flag) { defaults[f.Name] = f.DefValue })
	}
	for flag, want := range map[string]string{
		"bind-address":                   "127.0.0.1",
		"secure-port":                    "6443",
		"etcd-servers":                   "[]",
		"etcd-prefix":                    "/registry",
		"etcd-compaction-interval":       "5m0s",
		"client-ca-file":                 "",
		"token-auth-file":                "",
		"anonymous-auth":                 "true",
		"requestheader-client-ca-file":   "",
		"requestheader-allowed-names":    "[]",
		"requestheader-username-headers": "[X-Remote-User]",
		"requestheader-group-headers":    "[X-Remote-Group]",
		"authorization-mode":             "[]",
		"allow-privileged":               "false",
		"event-ttl":                      "1h0m0s",
		"max-requests-inflight":          "400",
		"max-mutating-requests-inflight": "200",
		"request-timeout":                "1m0s",
		"min-request-timeout":            "1800",
		"goaway-chance":                  "0",
		"livez-grace-period":             "0s",
		"shutdown-delay-duration":        "0s",
		"enable-priority-and-fairness":   "true",
		"service-cluster-ip-range":       "10.0.0.0/24",
		"service-account-key-file":       "[]",
		"service-account-lookup":         "true",
		"service-account-issuer":         "[]",
		"api-audiences":                  "[]",
		"service-node-port-range":        "30000-32767",
		"runtime-config":                 "",
	} {
		if got, ok := defaults[flag]; !ok || got != want {
			t.Errorf("--%s is %q by default (known: %v), want %q", flag, got, ok, want)
		}
	}
}

func TestDefaultsNeedOnlyAnEtcd(t *testing.T) {
	o, err := parse(t, "--etcd-servers=http://127.0.0.1:2379")
	if err != nil {
		t.Fatal(err)
	}
	if errs := o.Validate(); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
}

func TestTheTLSFilesOfEtcdMayBeForOverridesAlone(t *testing.T) {
	_, file, _ := testFiles(t)
	o, err := parse(t, "--etcd-servers=http://127.0.0.1:2379", "--etcd-servers-overrides=/events#https://127.0.0.1:2479", "--etcd-cafile="+file)
	if err != nil {
		t.Fatal(err)
	}
	if errs := o.Validate(); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
}

func TestInvalidFlagsOfEtcdNameTheRemedy(t *testing.T) {
	_, file, none := testFiles(t)
	testInvalidFlags(t, []invalidFlags{
		{"--etcd-servers=", []string{"--etcd-servers", "http://127.0.0.1:2379"}},
		{"--etcd-servers=localhost:2379", []string{"--etcd-servers", `"localhost:2379"`, "http://HOST:PORT"}},
		{"--etcd-servers=ftp://localhost", []string{"--etcd-servers", "https://HOST:PORT"}},
		{"--etcd-servers=http://", []string{"--etcd-servers", `"http://"`}},
		{"--etcd-servers-overrides=events#http://127.0.0.1:2479", []string{"--etcd-servers-overrides", `"events#http://127.0.0.1:2479"`, "/events#http://127.0.0.1:2379"}},
		{"--etcd-servers-overrides=/events#localhost:2479", []string{"--etcd-servers-overrides", `"localhost:2479"`, "http://HOST:PORT"}},
		{"--etcd-servers-overrides=/events#http://a:1,/events#http://b:1", []string{"--etcd-servers-overrides", "second entry for events"}},
		{"--etcd-prefix=registry", []string{"--etcd-prefix", "slash"}},
		{"--etcd-compaction-interval=0s", []string{"--etcd-compaction-interval", "above 0"}},
		{"--etcd-compaction-interval=-1m", []string{"--etcd-compaction-interval", "-1m0s", "above 0"}},
		{"--etcd-servers=https://127.0.0.1:2379 --etcd-certfile=" + file, []string{"--etcd-certfile", "--etcd-keyfile", "both or none"}},
		{"--etcd-cafile=" + file, []string{"--etcd-cafile", "--etcd-servers", "https://"}},
		{"--etcd-certfile=" + file + " --etcd-keyfile=" + file, []string{"--etcd-certfile", "--etcd-servers", "https://"}},
		{"--etcd-servers=https://127.0.0.1:2379 --etcd-cafile=" + none, []string{"--etcd-cafile", none, "can read"}},
	})
}

func TestInvalidFlagsOfServingNameTheRemedy(t *testing.T) {
	dir, file, none := testFiles(t)
	testInvalidFlags(t, []invalidFlags{
		{"--cors-allowed-origins=(", []string{"--cors-allowed-origins", "missing closing )"}},
		{"--cors-allowed-origins=example.com", []string{"--cors-allowed-origins", "pin"}},
		{"--strict-transport-security-directives=forever", []string{"--strict-transport-security-directives", "max-age"}},
		{"--secure-port=0", []string{"--secure-port", "1 and 65535"}},
		{"--secure-port=65536", []string{"--secure-port", "65535"}},
		{"--tls-cert-file=" + file, []string{"--tls-cert-file", "--tls-private-key-file", "both or none"}},
		{"--tls-private-key-file=" + file, []string{"--tls-cert-file", "--tls-private-key-file", "both or none"}},
		{"--tls-cert-file=" + none + " --tls-private-key-file=" + file, []string{"--tls-cert-file", none}},
		{"--client-ca-file=" + none, []string{"--client-ca-file", none, "can read"}},
		{"--client-ca-file=" + dir, []string{"--client-ca-file", "is a directory"}},
		{"--requestheader-client-ca-file=" + none, []string{"--requestheader-client-ca-file", none}},
		{"--requestheader-username-headers= ,X-Remote-User", []string{"requestheader-username-headers"}},
		{"--requestheader-allowed-names=front", []string{"--requestheader-allowed-names", "--requestheader-client-ca-file", "set both"}},
		{"--proxy-client-cert-file=" + file, []string{"--proxy-client-cert-file", "--proxy-client-key-file", "both or none"}},
		{"--max-requests-inflight=-1", []string{"--max-requests-inflight", "0 is no limit"}},
		{"--max-mutating-requests-inflight=-1000", []string{"--max-mutating-requests-inflight", "0 is no limit"}},
		{"--max-requests-inflight=0 --max-mutating-requests-inflight=0", []string{"--max-requests-inflight", "--enable-priority-and-fairness=false"}},
		{"--enable-admission-plugins=Bogus", []string{"--enable-admission-plugins: ", `"Bogus"`, "docs/reference/admission.md"}},
		{"--enable-admission-plugins=AlwaysPulImages", []string{"--enable-admission-plugins: ", `"AlwaysPulImages": did you mean "AlwaysPullImages"?`}},
		{"--disable-admission-plugins=LimitRange", []string{"--disable-admission-plugins: ", `"LimitRange": did you mean "LimitRanger"?`}},
		{"--request-timeout=0", []string{"--request-timeout", "above 0"}},
		{"--min-request-timeout=-1", []string{"--min-request-timeout", "seconds"}},
		{"--goaway-chance=0.03", []string{"--goaway-chance", "0.02"}},
		{"--goaway-chance=-1", []string{"--goaway-chance", "0.02"}},
		{"--livez-grace-period=-1s", []string{"--livez-grace-period", "negative"}},
		{"--shutdown-delay-duration=-1s", []string{"--shutdown-delay-duration", "negative"}},
		{"--advertise-address=0.0.0.0", []string{"--advertise-address", "0.0.0.0", "this machine's"}},
	})
}

func TestInvalidFlagsOfUsersAndAccessNameTheRemedy(t *testing.T) {
	_, file, none := testFiles(t)
	testInvalidFlags(t, []invalidFlags{
		{"--token-auth-file=" + none, []string{"--token-auth-file", none}},
		{"--authorization-mode=Magic", []string{"--authorization-mode", `"Magic"`, "choose from"}},
		{"--authorization-mode=AlwaysAllow,AlwaysAllow", []string{"--authorization-mode", "twice"}},
		{"--authorization-mode=RBAC --authorization-config=" + file, []string{"--authorization-config", "excludes --authorization-mode", "in the file"}},
		{"--authorization-config=" + none, []string{"--authorization-config", none}},
		{"--authorization-config=" + file, []string{"--authorization-config", file}},
		{"--authorization-mode=ABAC", []string{"--authorization-mode", "ABAC", "needs --authorization-policy-file"}},
		{"--authorization-mode=ABAC --authorization-policy-file=" + none, []string{"--authorization-policy-file", none}},
		{"--authorization-policy-file=" + file, []string{"--authorization-policy-file", "--authorization-mode=ABAC", "set both"}},
		{"--authorization-mode=Webhook", []string{"--authorization-mode", "Webhook", "needs --authorization-webhook-config-file"}},
		{"--authorization-mode=Webhook --authorization-webhook-config-file=" + none, []string{"--authorization-webhook-config-file", none}},
		{"--authorization-mode=Webhook --authorization-webhook-config-file=" + file + " --authorization-webhook-version=v2", []string{"--authorization-webhook-version", `"v2"`, "v1beta1"}},
		{"--service-account-signing-key-file=" + file + " --service-account-key-file=" + file, []string{"--service-account-signing-key-file", "--service-account-issuer"}},
		{"--service-account-signing-key-file=" + file + " --service-account-issuer=me", []string{"--service-account-signing-key-file", "--service-account-key-file"}},
		{"--service-account-key-file=" + file + " --service-account-key-file=" + none, []string{"--service-account-key-file", none, "can read"}},
		{"--service-account-signing-key-file=" + none + " --service-account-key-file=" + file + " --service-account-issuer=me", []string{"--service-account-signing-key-file", none}},
		{"--service-account-issuer=", []string{"--service-account-issuer", "empty"}},
		{"--service-account-issuer=https://[::1", []string{"--service-account-issuer", "https://HOST"}},
		{"--service-account-issuer=me --service-account-issuer=me", []string{"--service-account-issuer", `"me"`, "twice"}},
		{"--api-audiences=a,,b", []string{"--api-audiences", "--service-account-issuer"}},
		{"--service-account-jwks-uri=http://keys", []string{"--service-account-jwks-uri", "https://HOST/PATH"}},
		{"--service-account-max-token-expiration=59m", []string{"--service-account-max-token-expiration", "59m0s", "1h"}},
		{"--service-account-max-token-expiration=-1h", []string{"--service-account-max-token-expiration", "1h"}},
	})
}

func TestInvalidFlagsOfObjectsAndServicesNameTheRemedy(t *testing.T) {
	dir, _, none := testFiles(t)
	webhook := filepath.Join(dir, "webhook")
	if err := os.WriteFile(webhook, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testInvalidFlags(t, []invalidFlags{
		{"--audit-policy-file=" + none, []string{"--audit-policy-file", none, "can read"}},
		{"--audit-webhook-config-file=" + none, []string{"--audit-webhook-config-file", none, "can read"}},
		{"--audit-log-path=-", []string{"--audit-log-path", "--audit-policy-file", "set both"}},
		{"--audit-webhook-config-file=" + webhook, []string{"--audit-webhook-config-file", "--audit-policy-file", "set both"}},
		{"--enable-admission-plugins=EventRateLimit --disable-admission-plugins=EventRateLimit", []string{"EventRateLimit", "enable-admission-plugins", "disable-admission-plugins"}},
		{"--admission-control-config-file=" + none, []string{"--admission-control-config-file", none, "can read"}},
		{"--event-ttl=0s", []string{"--event-ttl", "at least 1s"}},
		{"--encryption-provider-config=" + none, []string{"--encryption-provider-config", none, "can read"}},
		{"--encryption-provider-config-automatic-reload", []string{"--encryption-provider-config-automatic-reload", "set both"}},
		{"--enable-admission-plugins=Magic", []string{"enable-admission-plugins", "Magic"}},
		{"--service-cluster-ip-range=10.0.0.0", []string{"--service-cluster-ip-range", `"10.0.0.0"`, "10.0.0.0/24"}},
		{"--service-cluster-ip-range=", []string{"--service-cluster-ip-range", "10.0.0.0/24"}},
		{"--service-cluster-ip-range=10.0.0.0/8", []string{"--service-cluster-ip-range", "3 to 20 bits"}},
		{"--service-cluster-ip-range=10.0.0.0/30", []string{"--service-cluster-ip-range", "3 to 20 bits"}},
		{"--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24", []string{"--service-cluster-ip-range", "different families"}},
		{"--service-cluster-ip-range=10.0.0.0/24,fd00::/112,fd01::/112", []string{"--service-cluster-ip-range", "one CIDR, or two"}},
		{"--service-node-port-range=0-0", []string{"--service-node-port-range", "30000-32767"}},
	})
}

// testFiles returns a directory, an empty file in it, and a name that no file has.
func testFiles(t *testing.T) (dir, file, none string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file, filepath.Join(dir, "none")
}

// invalidFlags are arguments and the parts of their error.
type invalidFlags struct {
	args string
	want []string
}

// testInvalidFlags checks that each case gives one error, in one line, that names the flag and
// the remedy.
func testInvalidFlags(t *testing.T, cases []invalidFlags) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.args, func(t *testing.T) {
			o, err := parse(t, append([]string{"--etcd-servers=http://127.0.0.1:2379"}, arguments(test.args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(test.args, "--etcd-servers=") {
				o.Etcd.Servers = o.Etcd.Servers[1:] // flags of lists add to what was given before
			}
			errs := o.Validate()
			if len(errs) != 1 {
				t.Fatalf("%d errors: %v", len(errs), errs)
			}
			for _, want := range test.want {
				if !strings.Contains(errs[0].Error(), want) {
					t.Errorf("%q does not mention %q", errs[0], want)
				}
			}
			if strings.Contains(errs[0].Error(), "\n") {
				t.Errorf("more than a line: %q", errs[0])
			}
		})
	}
}

// arguments splits at spaces before a flag.
func arguments(line string) []string {
	var args []string
	for i, part := range strings.Split(line, " --") {
		if i > 0 {
			part = "--" + part
		}
		args = append(args, part)
	}
	return args
}

func TestValuesThatDoNotParseNameTheirFlag(t *testing.T) {
	for _, arg := range []string{
		"--request-timeout=soon", "--secure-port=https", "--bind-address=here", "--service-node-port-range=high", "--anonymous-auth=perhaps",
		"--feature-gates=Unknown=true", "--feature-gates=APIResponseCompression", "--goaway-chance=often",
	} {
		t.Run(arg, func(t *testing.T) {
			flag, _, _ := strings.Cut(arg, "=")
			if _, err := parse(t, arg); err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestServiceRangesAreMaskedAndOrderedAsGiven(t *testing.T) {
	n := Network{ServiceClusterIPRange: "fd00::5/112, 10.0.0.9/24"}
	got, err := n.ServiceCIDRs()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].String() != "fd00::/112" || got[1].String() != "10.0.0.0/24" {
		t.Errorf("got %v", got)
	}
}

func TestOptionsShareNothing(t *testing.T) {
	a, err := parse(t, "--requestheader-username-headers=X-Other", "--runtime-config=api/all=true", "--enable-admission-plugins=NamespaceLifecycle")
	if err != nil {
		t.Fatal(err)
	}
	b := New()
	if b.Authentication.RequestHeader.UsernameHeaders[0] != "X-Remote-User" || len(b.RuntimeConfig) > 0 || len(b.Admission.EnablePlugins) > 0 {
		t.Errorf("flags of one change the other: %+v", b)
	}
	if len(a.RuntimeConfig) != 1 {
		t.Errorf("--runtime-config is %v", a.RuntimeConfig)
	}
}

func TestPluginsThatSvcDoesNotHaveMayBeDisabledButNotEnabled(t *testing.T) {
	const etcd = "--etcd-servers=http://127.0.0.1:2379"
	o, err := parse(t, etcd, "--disable-admission-plugins=PodGroupWorkloadExists,Priority", "--disable-admission-plugins=JobValidation")
	if err != nil {
		t.Fatal(err)
	}
	if errs := o.Validate(); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
	if got := o.Admission.DisablePlugins; !slices.Equal(got, []string{"Priority"}) {
		t.Errorf("disabled are %v, want Priority", got)
	}
	for _, args := range []string{"--enable-admission-plugins=JobValidation", "--disable-admission-plugins=AlwaysPullImage"} {
		if o, err = parse(t, etcd, args); err != nil {
			t.Fatal(err)
		}
		if errs := o.Validate(); len(errs) != 1 {
			t.Errorf("%s is refused with %v, want one error", args, errs)
		}
	}
}

func TestAbsentPluginsAreNotRegistered(t *testing.T) {
	for _, name := range New().Admission.Plugins.Registered() {
		if slices.Contains(absentPlugins, name) {
			t.Errorf("%s is registered", name)
		}
	}
}
