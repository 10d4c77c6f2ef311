package main

import (
	"slices"
	"strings"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestAMistakeInACommandLineIsOneLineWithTheFlagAndTheRemedy(t *testing.T) {
	testMistakes(t, []mistake{
		{"an unknown command", []string{"serve"}, `svc: unknown command "serve"; see 'svc --help'`},
		{"a misspelt command", []string{"upp"}, `svc: unknown command "upp": did you mean "up"?; see 'svc --help'`},
		{"an unknown flag", []string{"up", "--frobnicate"}, "svc up: unknown flag: --frobnicate; see 'svc up --help'"},
		{"a misspelt flag", []string{"up", "--secur-port=1"}, "svc up: unknown flag: --secur-port: did you mean --secure-port?; see 'svc up --help'"},
		{"ports of which one is none", []string{"up", "--host-load-balancer-reserved-ports=80,http"}, `svc up: --host-load-balancer-reserved-ports: "80,http" is not whole numbers with commas between; see 'svc up --help'`},
		{"an unknown short flag", []string{"version", "-x"}, "svc version: unknown shorthand flag: 'x' in -x; see 'svc version --help'"},
		{"a flag without its value", []string{"up", "--data-dir"}, "svc up: flag needs an argument: --data-dir; see 'svc up --help'"},
		{"an argument that is not a flag", []string{"up", "now"}, `svc up: unexpected argument "now": only flags are taken; see 'svc up --help'`},
		{"a version of TLS that is none", []string{"up", "--tls-min-version=1.2"}, `svc up: --tls-min-version: "1.2": choose from VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13; see 'svc up --help'`},
		{"a number that is none", []string{"up", "--secure-port=https"}, `svc up: --secure-port: "https" is not a whole number; see 'svc up --help'`},
		{"a fraction that is none", []string{"up", "--horizontal-pod-autoscaler-tolerance=10%"}, `svc up: --horizontal-pod-autoscaler-tolerance: "10%" is not a number; see 'svc up --help'`},
		{"a rate that is none", []string{"up", "--node-eviction-rate="}, `svc up: --node-eviction-rate: "" is not a number; see 'svc up --help'`},
		{"curves that are no numbers", []string{"up", "--tls-curve-preferences=X25519"}, `svc up: --tls-curve-preferences: "X25519" is not whole numbers with commas between; see 'svc up --help'`},
		{"an amount that is none", []string{"up", "--log-text-info-buffer-size=much"}, `svc up: --log-text-info-buffer-size: "much" is not an amount, such as 64Ki; see 'svc up --help'`},
		{"a verbosity that is none", []string{"up", "-v=loud"}, `svc up: --v: "loud" is not a whole number from 0; see 'svc up --help'`},
		{"a duration without a unit", []string{"apiserver", "--request-timeout=5"}, `svc apiserver: --request-timeout: "5" is not a duration, such as 30s or 5m; see 'svc apiserver --help'`},
		{"an address that is none", []string{"up", "--bind-address=here"}, `svc up: --bind-address: "here" is not an IP address; see 'svc up --help'`},
		{"a range of the server and of the controllers", []string{"up", "--service-cluster-ip-range=10.0.0.0"}, `svc up: --service-cluster-ip-range: "10.0.0.0" is not a CIDR, such as 10.0.0.0/24; see 'svc up --help'`},
		{"ports that are no range", []string{"up", "--service-node-port-range=high"}, `svc up: --service-node-port-range: "high" is not a range of ports, such as 30000-32767; see 'svc up --help'`},
		{"a switch that is neither on nor off", []string{"up", "--anonymous-auth=perhaps"}, `svc up: --anonymous-auth: "perhaps" is not true or false; see 'svc up --help'`},
		{"an unknown feature gate", []string{"up", "--feature-gates=Nope=true"}, `svc up: --feature-gates: "Nope=true": Nope is not a known feature gate; docs/reference/feature-gates.md lists them; see 'svc up --help'`},
		{"an unknown log format", []string{"apiserver", "--etcd-servers=http://127.0.0.1:1", "--logging-format=verse"},
			`svc apiserver: --logging-format: Invalid value: "verse": Unsupported log format; choose from text, json; see 'svc apiserver --help'`},
		{"a data directory without a name", []string{"up", "--data-dir="},
			"svc up: --data-dir: the name is empty; name a directory, or leave the flag out; see 'svc up --help'"},
		{"help on an unknown command", []string{"help", "serve"}, `svc help: unknown command "serve"; see 'svc --help'`},
		{"a shell that is none", []string{"completion", "basic"}, "svc completion: name one shell: bash, fish, powershell, zsh; see 'svc completion --help'"},
		{"an unknown output format", []string{"version", "--output=table"}, `svc version: --output: "table" is not json; leave the flag out for text; see 'svc version --help'`},
	})
}

func TestAMistakeInFlagsOfTheServerIsOneLineWithTheRemedy(t *testing.T) {
	testMistakes(t, []mistake{
		{"no etcd", []string{"apiserver"}, "svc apiserver: --etcd-servers: name at least one etcd server, as http://127.0.0.1:2379; see 'svc apiserver --help'"},
		{"TLS to an etcd that is embedded", []string{"up", "--etcd-cafile=ca.crt"},
			"svc up: --etcd-cafile needs --etcd-servers or --etcd-servers-overrides: without them svc up runs an etcd of its own, which uses no TLS; see 'svc up --help'"},
		{"a file that svc up makes", []string{"up", "--tls-cert-file=my.crt"},
			"svc up: --tls-cert-file: svc up makes its own keys and certificates, in --data-dir; use 'svc apiserver' for others; see 'svc up --help'"},
		{"a file that is not there", []string{"up", "--token-auth-file=/nowhere/tokens"},
			"svc up: --token-auth-file: stat /nowhere/tokens: no such file or directory; name a file that the server can read; see 'svc up --help'"},
		{"an issuer without a client", []string{"up", "--oidc-issuer-url=https://a"}, "svc up: --oidc-issuer-url and --oidc-client-id: set both, or no --oidc-* flag; see 'svc up --help'"},
		{"an issuer without TLS", []string{"up", "--oidc-issuer-url=http://a", "--oidc-client-id=c"},
			`svc up: --oidc-issuer-url: "http://a" is not an https URL; write https://HOST/PATH; see 'svc up --help'`},
		{"tokens without a signature", []string{"up", "--oidc-issuer-url=https://a", "--oidc-client-id=c", "--oidc-signing-algs=none"},
			`svc up: --oidc-signing-algs: unsupported value "none": one of ES256, ES384, ES512, PS256, PS384, PS512, RS256, RS384, RS512; see 'svc up --help'`},
		{"issuers of a file and of flags", []string{"up", "--oidc-client-id=c", "--authentication-config=testdata/empty.svcconfig"},
			"svc up: --authentication-config and --oidc-*: use one of them; the issuer of the flags can be in the file; see 'svc up --help'"},
		{"issuers of a file that is not there", []string{"up", "--authentication-config=/nowhere/a"},
			"svc up: --authentication-config: stat /nowhere/a: no such file or directory; name a file that the server can read; see 'svc up --help'"},
		{"an unknown version of reviews", []string{"up", "--authentication-token-webhook-version=v2"},
			`svc up: --authentication-token-webhook-version: unsupported value "v2": one of v1, v1beta1; see 'svc up --help'`},
	})
}

func TestABadGroupDomainIsOneLineWithTheRemedy(t *testing.T) {
	const ofKubernetes = `--group-domain: "apps.k8s.io" belongs to Kubernetes, whose groups the host serves itself; choose a domain that you own, as svc.example.com`
	testMistakes(t, []mistake{
		{"of Kubernetes", []string{"apiserver", "--etcd-servers=http://127.0.0.1:1", "--group-domain=apps.k8s.io"},
			"svc apiserver: " + ofKubernetes + "; see 'svc apiserver --help'"},
		{"Kubernetes' own", []string{"apiserver", "--etcd-servers=http://127.0.0.1:1", "--group-domain=k8s.io"},
			"svc apiserver: " + strings.Replace(ofKubernetes, "apps.k8s.io", "k8s.io", 1) + "; see 'svc apiserver --help'"},
		{"of one label", []string{"apiserver", "--etcd-servers=http://127.0.0.1:1", "--group-domain=fleet"},
			`svc apiserver: --group-domain: "fleet" has one label only, its groups could be mistaken for Kubernetes' own; choose a domain that you own, as svc.example.com; see 'svc apiserver --help'`},
		{"that is no subdomain", []string{"apiserver", "--etcd-servers=http://127.0.0.1:1", "--group-domain=Svc_Dev"},
			`svc apiserver: --group-domain: "Svc_Dev" is not a domain: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); see 'svc apiserver --help'`},
		{"of a connection", []string{"kubeconfig", "--group-domain=apps.k8s.io"}, "svc kubeconfig: " + ofKubernetes + "; see 'svc kubeconfig --help'"},
		{"to unregister", []string{"unregister", "--group-domain=apps.k8s.io"}, "svc unregister: " + ofKubernetes + "; see 'svc unregister --help'"},
		{"of a token", []string{"token", "create", "--print-join-command", "--group-domain=apps.k8s.io"}, "svc token create: " + ofKubernetes + "; see 'svc token create --help'"},
	})
}

func TestAMistakeInFlagsOfControllersIsOneLineWithTheRemedy(t *testing.T) {
	testMistakes(t, []mistake{
		{"an unknown controller", []string{"controller-manager", "--controllers=*,-namspace"},
			`svc controller-manager: --controllers: there is no controller "namspace": did you mean "namespace"?; see 'svc controller-manager --help'`},
		{"an unknown controller of svc up", []string{"up", "--controllers=namspace"},
			`svc up: --controllers: there is no controller "namspace": did you mean "namespace"?; see 'svc up --help'`},
		{"a lease that ends too early", []string{"controller-manager", "--leader-elect-lease-duration=5s"},
			"svc controller-manager: --leader-elect-lease-duration: 5s must be longer than --leader-elect-renew-deadline, 10s; see 'svc controller-manager --help'"},
		{"half of a certificate", []string{"controller-manager", "--tls-cert-file=tls.crt"},
			"svc controller-manager: --tls-cert-file and --tls-private-key-file: set both or none; see 'svc controller-manager --help'"},
		{"a manager without a server", []string{"controller-manager"},
			"svc controller-manager: --svcconfig: name a file; only in a pod it may be left out; see 'svc controller-manager --help'"},
		{"a connection file that is not there", []string{"controller-manager", "--kubeconfig=/nowhere/svcconfig"},
			"svc controller-manager: --svcconfig: /nowhere/svcconfig: no such file or directory: name a kubeconfig that can be read; see 'svc controller-manager --help'"},
		{"a connection file that is a directory", []string{"controller-manager", "--svcconfig=testdata"},
			"svc controller-manager: --svcconfig: testdata: is a directory: name a kubeconfig that can be read; see 'svc controller-manager --help'"},
		{"a connection file that is none", []string{"controller-manager", "--svcconfig=testdata/broken.svcconfig"},
			"svc controller-manager: --svcconfig: testdata/broken.svcconfig: it is not a kubeconfig: yaml: line 2: found character that cannot start any token; see 'svc controller-manager --help'"},
		{"a connection file that says nothing", []string{"controller-manager", "--svcconfig=testdata/empty.svcconfig"},
			"svc controller-manager: --svcconfig: testdata/empty.svcconfig: it does not say which API server to use: add a cluster, or name another file; see 'svc controller-manager --help'"},
		{"an authority without its key", []string{"controller-manager", "--cluster-signing-cert-file=ca.crt"},
			"svc controller-manager: --cluster-signing-cert-file and --cluster-signing-key-file: set both or none; see 'svc controller-manager --help'"},
	})
}

func TestAMistakeAboutNodesAndImagesIsOneLineWithTheRemedy(t *testing.T) {
	testMistakes(t, []mistake{
		{"neither a node nor none", []string{"up", "--node=perhaps"}, `svc up: --node: "perhaps" is not auto, true or false; see 'svc up --help'`},
		{"a name that no node can have", []string{"up", "--hostname-override=My_Machine"},
			`svc up: --hostname-override: "My_Machine" cannot name a node: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); see 'svc up --help'`},
		{"pods of two ranges", []string{"up", "--pod-cidr=10.1.0.0/24,10.2.0.0/24"},
			"svc up: --node-bridge, --pod-cidr: the pods' ranges 10.1.0.0/24 and 10.2.0.0/24 are of the same IP family; see 'svc up --help'"},
		{"pods and services of one range", []string{"up", "--node=false", "--pod-cidr=10.1.2.0/24", "--service-cluster-ip-range=10.1.0.0/16"},
			"svc up: --pod-cidr: the pods' range 10.1.2.0/24 overlaps with 10.1.0.0/16 of --service-cluster-ip-range: choose another one for either; see 'svc up --help'"},
		{"a port beyond all ports", []string{"up", "--node-port=70000"}, "svc up: --node-port: 70000 is not a port: choose one from 0 to 65535; see 'svc up --help'"},
		{"an unknown command about nodes", []string{"node", "rest"}, `svc node: unknown command "rest": did you mean "reset"?; see 'svc node --help'`},
		{"an unknown command about images", []string{"image", "imprt"}, `svc image: unknown command "imprt": did you mean "import"?; see 'svc image --help'`},
		{"a bridge whose name is a path", []string{"up", "--node-bridge=a/b"},
			`svc up: --node-bridge, --pod-cidr: the bridge "a/b" has a name that no network interface can have: use letters, digits and '-'; see 'svc up --help'`},
		{"an image whose file has no name", []string{"image", "import", ""}, "svc image import: name the files to import, or - for standard input"},
		{"no image", []string{"image", "import"}, "svc image import: name the files to import, or - for standard input"},
		{"an image to list", []string{"image", "list", "a/b"}, `svc image list: unexpected argument "a/b": only flags are taken`},
		{"no image to pull", []string{"image", "pull"}, "svc image pull: name the images to pull, as docker.io/library/busybox:1"},
		{"one name for two files", []string{"image", "import", "--name=a/b:1", "a.tar", "b.tar"}, "svc image import: --name is for a single file: import the others by themselves"},
	})
}

func TestAResetReportsHowManyPodsOfWhichDirectoryItHasEnded(t *testing.T) {
	for ended, want := range []string{
		"no pod of /data was running; what was left of pods and of the container runtime is removed",
		"1 pod of /data has been ended, and the container runtime with it; its ",
		"2 pods of /data have been ended, and the container runtime with them; their ",
	} {
		if got := resetReport("/data", ended); !strings.HasPrefix(got, want) {
			t.Errorf("%d: %q, want %q", ended, got, want)
		}
	}
}

func TestAMistakeAboutUsersAndTokensIsOneLineWithTheRemedy(t *testing.T) {
	testMistakes(t, []mistake{
		{"a user without a name", []string{"user", "create"}, "svc user create: give one name; see 'svc user create --help'"},
		{"a user whose name is empty", []string{"user", "create", ""}, "svc user create: the name is empty; see 'svc user create --help'"},
		{"a certificate that is too short", []string{"user", "create", "ann", "--expires=1m"},
			"svc user create: --expires: 1m0s must be at least 10m0s, and less than 68 years; see 'svc user create --help'"},
		{"a group without a name", []string{"user", "create", "ann", `--group=a,`},
			"svc user create: --group: must not be empty; see 'svc user create --help'"},
		{"an unknown command about tokens", []string{"token", "creat"}, `svc token: unknown command "creat": did you mean "create"?; see 'svc token --help'`},
		{"a token of another form", []string{"token", "create", "secret"},
			"svc token create: invalid token: must be 6 and 16 characters of a-z and 0-9 with a dot between them, as in abcdef.0123456789abcdef; see 'svc token create --help'"},
		{"two tokens", []string{"token", "create", "a", "b"}, "svc token create: give at most one token; see 'svc token create --help'"},
		{"a negative time to live", []string{"token", "create", "--ttl=-1h"},
			"svc token create: --ttl: -1h0m0s must be at least 1s, or 0, which is without end; see 'svc token create --help'"},
		{"an unknown usage", []string{"token", "create", "--usages=authentication,login"},
			`svc token create: --usages: unsupported value "login": one of signing, authentication; see 'svc token create --help'`},
		{"no usage", []string{"token", "create", "--usages="},
			`svc token create: --usages: name at least one of signing, authentication; see 'svc token create --help'`},
		{"a group outside those of bootstrap tokens", []string{"token", "create", "--groups=system:masters"},
			`svc token create: --groups: invalid group "system:masters": must be system:bootstrappers: and a name of a-z, 0-9, : and -; see 'svc token create --help'`},
		{"groups of a token that does not authenticate", []string{"token", "create", "--usages=signing", "--groups=system:bootstrappers:a"},
			"svc token create: --groups: they have an effect only with the usage authentication; see 'svc token create --help'"},
		{"a kubeconfig of a token that does not authenticate", []string{"token", "create", "--usages=signing", "--print-kubeconfig"},
			"svc token create: --print-kubeconfig: the token does not authenticate; add authentication to --usages; see 'svc token create --help'"},
		{"a server for machines of a token by which none joins", []string{"token", "create", "--usages=authentication", "--server=https://a:6443"},
			"svc token create: --server: a machine joins with a token that has the usage signing: add it to --usages; see 'svc token create --help'"},
		{"a kubeconfig and the command", []string{"token", "create", "--print-kubeconfig", "--print-join-command"},
			"svc token create: --print-join-command excludes --print-kubeconfig: leave one of them out; see 'svc token create --help'"},
		{"a deletion of no token", []string{"token", "delete"}, "svc token delete: name the tokens to delete; see 'svc token delete --help'"},
		{"an ID that no token can have", []string{"token", "delete", "ABC"},
			`svc token delete: invalid token or ID "ABC": an ID is 6 characters of a-z and 0-9; see 'svc token delete --help'`},
		{"a cluster whose kubeconfig is not there", []string{"token", "list", "--kubeconfig=/nowhere/config"},
			"svc token list: --svcconfig: /nowhere/config: no such file or directory: name a kubeconfig that can be read; see 'svc token list --help'"},
	})
}

type mistake struct {
	name string
	args []string
	want string // the line on standard error
}

func testMistakes(t *testing.T, mistakes []mistake) {
	t.Helper()
	for _, tc := range mistakes {
		t.Run(tc.name, func(t *testing.T) {
			var out, errOut strings.Builder
			code := run(tc.args, &out, &errOut)
			if code != 1 || out.String() != "" || errOut.String() != tc.want+"\n" {
				t.Errorf("exit code %d, stdout %q\ngot  %swant %s", code, out.String(), errOut.String(), tc.want)
			}
		})
	}
}

func TestHelpListsFlagsBySubject(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		wants []string
		hides []string
	}{
		{[]string{"--help"}, []string{"up ", "apiserver ", "node ", "image ", "kubectl ", "version ", "completion "}, nil},
		{[]string{"up", "--help"}, []string{"Up flags:", "--data-dir", "Node flags:", "--node ", "--container-runtime-endpoint", "Etcd flags:", "--etcd-servers", "Secure serving flags:", "--secure-port", "Logs flags:"},
			[]string{"--tls-cert-file", "--client-ca-file ", "--authentication-kubeconfig"}},
		{[]string{"controller-manager", "--help"}, []string{"API server flags:", "--svcconfig", "Controllers flags:", "--controllers", "Leader election flags:", "Namespace controller flags:",
			"Secure serving flags:", "--cert-dir", "Authorization flags:", "--authorization-always-allow-paths", "--profiling"}, []string{"--etcd-servers"}},
		{[]string{"apiserver", "--help"}, []string{"Etcd flags:", "--etcd-prefix", "--tls-cert-file", "--client-ca-file"}, []string{"--data-dir"}},
	} {
		var out, errOut strings.Builder
		if code := run(tc.args, &out, &errOut); code != 0 || errOut.String() != "" {
			t.Errorf("%v: exit code %d, stderr %q", tc.args, code, errOut.String())
		}
		for _, want := range tc.wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tc.args, want, out.String())
			}
		}
		for _, hidden := range tc.hides {
			if strings.Contains(out.String(), hidden) {
				t.Errorf("%v says %q", tc.args, hidden)
			}
		}
	}
}

func TestVersionSaysWhatSvcIsMadeOf(t *testing.T) {
	for args, want := range map[string]string{"version": "svc ", "--version": "svc ", "version -o json": `"svc": `, "apiserver --version": "Kubernetes v1.28.0+svc-"} {
		var out, errOut strings.Builder
		if code := run(strings.Fields(args), &out, &errOut); code != 0 || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "1.28") {
			t.Errorf("%s: exit code %d, %s%s", args, code, out.String(), errOut.String())
		}
	}
}

func TestCompletionIsWrittenForEveryShell(t *testing.T) {
	for shell := range shells {
		var out, errOut strings.Builder
		if code := run([]string{"completion", shell}, &out, &errOut); code != 0 || !strings.Contains(out.String(), "svc") {
			t.Errorf("%s: exit code %d, %s", shell, code, errOut.String())
		}
	}
}

func TestKubectlIsCompletedToo(t *testing.T) {
	var out, errOut strings.Builder
	code := run([]string{"__complete", "kubectl", "rollout", "un"}, &out, &errOut)
	if code != 0 || !strings.HasPrefix(out.String(), "undo\t") {
		t.Errorf("exit code %d, %s%s", code, out.String(), errOut.String())
	}
}

func TestALinkWithTheNameOfAProgramOfKubernetesStandsForACommand(t *testing.T) {
	for _, tc := range []struct{ line, want []string }{
		{[]string{"/assets/kube-apiserver", "--secure-port=1"}, []string{"apiserver", "--secure-port=1"}},
		{[]string{"kubectl", "get", "pods"}, []string{"kubectl", "get", "pods"}},
		{[]string{"/usr/bin/svc", "up", "-v=0"}, []string{"up", "-v=0"}},
		{[]string{"svc"}, nil},
	} {
		if got := arguments(tc.line); !slices.Equal(got, tc.want) {
			t.Errorf("%v means svc %v, want svc %v", tc.line, got, tc.want)
		}
	}
}

func TestLogsMayBeJSON(t *testing.T) {
	logging := logsapi.NewLoggingConfiguration()
	logging.Format = logsapi.JSONLogFormat
	if errs := logsapi.Validate(logging, nil, nil); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
}
