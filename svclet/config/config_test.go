package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"svc.dev/svc/internal/featuregates"
)

func noVariables(string) string { return "" }

// head is the head of a configuration file.
const head = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"

// write writes files in a new directory, and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// problems returns the problems that Load returns.
func problems(t *testing.T, args ...string) []string {
	t.Helper()
	_, err := Load(args, noVariables)
	var all Problems
	if err != nil && !errors.As(err, &all) {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	return all
}

func TestPrecedenceIsFlagDropInFileDefault(t *testing.T) {
	// Fields of each kind in each of the layers; the last layer wins.
	type layers struct{ field, file, dropIn, flag string }
	values := []struct {
		name, byDefault string
		layers
		get func(*Settings) any
		// want is the result for file, drop-in and flag.
		want [3]string
	}{
		{name: "number", byDefault: "110", layers: layers{"maxPods", "1", "2", "--max-pods=3"},
			get: func(s *Settings) any { return s.Configuration.MaxPods }, want: [3]string{"1", "2", "3"}},
		{name: "pointer to number", byDefault: "10248", layers: layers{"healthzPort", "1", "0", "--healthz-port=3"},
			get: func(s *Settings) any { return *s.Configuration.HealthzPort }, want: [3]string{"1", "0", "3"}},
		{name: "text", byDefault: "cgroupfs", layers: layers{"cgroupDriver", "systemd", "cgroupfs", "--cgroup-driver=systemd"},
			get: func(s *Settings) any { return s.Configuration.CgroupDriver }, want: [3]string{"systemd", "cgroupfs", "systemd"}},
		{name: "yes or no", byDefault: "true", layers: layers{"cpuCFSQuota", "false", "true", "--cpu-cfs-quota=false"},
			get: func(s *Settings) any { return *s.Configuration.CPUCFSQuota }, want: [3]string{"false", "true", "false"}},
		{name: "duration", byDefault: "20s", layers: layers{"fileCheckFrequency", "1s", "2s", "--file-check-frequency=3s"},
			get: func(s *Settings) any { return s.Configuration.FileCheckFrequency.Duration }, want: [3]string{"1s", "2s", "3s"}},
		{name: "list", byDefault: "[]", layers: layers{"clusterDNS", "[10.0.0.1, 10.0.0.2]", "[10.0.0.3]", "--cluster-dns=10.0.0.4,10.0.0.5"},
			get:  func(s *Settings) any { return s.Configuration.ClusterDNS },
			want: [3]string{"[10.0.0.1 10.0.0.2]", "[10.0.0.3]", "[10.0.0.4 10.0.0.5]"}},
		{name: "map", byDefault: "map[]", layers: layers{"systemReserved", "{cpu: 1m, pid: '1'}", "{cpu: 2m}", "--system-reserved=memory=3Mi"},
			get:  func(s *Settings) any { return s.Configuration.SystemReserved },
			want: [3]string{"map[cpu:1m pid:1]", "map[cpu:2m pid:1]", "map[memory:3Mi]"}},
		{name: "gates", byDefault: "map[]", layers: layers{"featureGates", "{NodeSwap: true, AppArmor: false}", "{AppArmor: true}", "--feature-gates=NodeSwap=false"},
			get:  func(s *Settings) any { return s.Configuration.FeatureGates },
			want: [3]string{"map[AppArmor:false NodeSwap:true]", "map[AppArmor:true NodeSwap:true]", "map[AppArmor:true NodeSwap:false]"}},
		{name: "field of a field", byDefault: "2m0s", layers: layers{"authentication", "{webhook: {cacheTTL: 1s}, anonymous: {enabled: false}}", "{webhook: {cacheTTL: 2s}}", "--authentication-token-webhook-cache-ttl=3s"},
			get: func(s *Settings) any { return s.Configuration.Authentication.Webhook.CacheTTL.Duration }, want: [3]string{"1s", "2s", "3s"}},
		{name: "verbosity", byDefault: "0", layers: layers{"logging", "{verbosity: 1}", "{verbosity: 2}", "-v=3"},
			get: func(s *Settings) any { return s.Configuration.Logging.Verbosity }, want: [3]string{"1", "2", "3"}},
	}
	for _, v := range values {
		for present := range 8 { // file 1, drop-in 2, flag 4
			want, files, args := v.byDefault, map[string]string{"file": head}, []string{}
			if present&1 != 0 {
				files["file"] += v.field + ": " + v.file + "\n"
				want = v.want[0]
			}
			if present&2 != 0 {
				files["drop-ins/10.conf"] = head + v.field + ": " + v.dropIn + "\n"
				want = v.want[1]
			}
			if present&4 != 0 {
				args = append(args, v.flag)
				want = v.want[2]
			}
			directory := write(t, files)
			args = append(args, "--config="+filepath.Join(directory, "file"))
			if present&2 != 0 {
				args = append(args, "--config-dir="+filepath.Join(directory, "drop-ins"))
			}
			s, err := Load(args, noVariables)
			if err != nil {
				t.Errorf("%s: %v: %v", v.name, args, err)
				continue
			}
			// Maps are merged: an empty one removes nothing.
			switch {
			case v.name == "map" && present&3 == 2:
				want = strings.Replace(want, " pid:1", "", 1)
			case v.name == "gates":
				want = gatesOf(present)
			}
			if got := fmt.Sprint(v.get(s)); got != want {
				t.Errorf("%s of %03b (flag, drop-in, file) is %s, want %s", v.name, present, got, want)
			}
		}
	}
}

// gatesOf returns the gates for these layers.
func gatesOf(present int) string {
	gates := map[string]bool{}
	for bit, layer := range []map[string]bool{{"NodeSwap": true, "AppArmor": false}, {"AppArmor": true}, {"NodeSwap": false}} {
		if present&(1<<bit) != 0 {
			maps.Copy(gates, layer)
		}
	}
	return fmt.Sprint(gates)
}

func TestAMapFlagReplacesTheFilesMapAndMergesRepeatedFlags(t *testing.T) {
	directory := write(t, map[string]string{"file": head + "allowedUnsafeSysctls: [a]\nstaticPodURLHeader: {A: [x]}\n"})
	s, err := Load([]string{"--config", directory + "/file", "--allowed-unsafe-sysctls=b", "--allowed-unsafe-sysctls=c,d",
		"--manifest-url-header=b:1,c:2", "--manifest-url-header=b:3"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(s.Configuration.AllowedUnsafeSysctls), "[b c d]"; got != want {
		t.Errorf("sysctls are %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(s.Configuration.StaticPodURLHeader), "map[b:[1 3] c:[2]]"; got != want {
		t.Errorf("headers are %s, want %s", got, want)
	}
}

func TestDropInsAreReadInLexicalOrderAndTheirNamesEndInConf(t *testing.T) {
	directory := write(t, map[string]string{
		"20-late.conf": head + "maxPods: 20\npodsPerCore: null\n",
		"10.conf":      head + "maxPods: 10\npodsPerCore: 5\n",
		"sub/x.conf":   head + "podPidsLimit: 7\n",
		"30.yaml":      "this is not read",
	})
	for name, s := range map[string]func() (*Settings, error){
		"--config-dir":  func() (*Settings, error) { return Load([]string{"--config-dir=" + directory}, noVariables) },
		DropInVariable:  func() (*Settings, error) { return Load(nil, variable(directory)) },
		"flag and that": func() (*Settings, error) { return Load([]string{"--config-dir=" + directory}, variable("/nowhere")) },
	} {
		s, err := s()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c := s.Configuration
		if c.MaxPods != 20 || c.PodsPerCore != 0 || *c.PodPidsLimit != 7 {
			t.Errorf("%s: maxPods %d, podsPerCore %d, podPidsLimit %d, want 20, 0, 7", name, c.MaxPods, c.PodsPerCore, *c.PodPidsLimit)
		}
	}
	if _, err := Load(nil, variable("/nowhere")); err == nil || err.Error() != DropInVariable+": /nowhere: no such file or directory" {
		t.Errorf("a directory that is not there: %v", err)
	}
	if _, err := Load([]string{"--config-dir="}, variable("/nowhere")); err != nil {
		t.Errorf("an empty --config-dir does not turn the variable off: %v", err)
	}
}

func variable(directory string) func(string) string {
	return func(name string) string {
		if name == DropInVariable {
			return directory
		}
		return ""
	}
}

func TestRelativePathsInAFileAreRelativeToItsDirectory(t *testing.T) {
	directory := write(t, map[string]string{
		"file":      head + "staticPodPath: pods\nauthentication: {x509: {clientCAFile: ca.crt}}\nresolvConf: \"\"\n",
		"d/10.conf": head + "podLogsDir: logs\ntlsCertFile: /abs.crt\ntlsPrivateKeyFile: key\n",
	})
	s, err := Load([]string{"--config", directory + "/file", "--config-dir", directory + "/d"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Configuration
	got := []string{c.StaticPodPath, c.Authentication.X509.ClientCAFile, *c.ResolverConfig, c.PodLogsDir, c.TLSCertFile, c.TLSPrivateKeyFile}
	want := []string{directory + "/pods", directory + "/ca.crt", "", directory + "/d/logs", "/abs.crt", directory + "/d/key"}
	if !slices.Equal(got, want) {
		t.Errorf("paths are %q, want %q", got, want)
	}
}

func TestTheConfigFilesPathIsRelativeToTheWorkingDirectory(t *testing.T) {
	t.Chdir(write(t, map[string]string{"file": head + "maxPods: 5\n"}))
	if s, err := Load([]string{"--config=file"}, noVariables); err != nil || s.Configuration.MaxPods != 5 {
		t.Errorf("%v", err)
	}
}

func TestAKubeletConfigurationFileIsAccepted(t *testing.T) {
	s, err := Load([]string{"--config=testdata/kubeadm.yaml"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	c, d := s.Configuration, Default()
	if c.SyncFrequency != d.SyncFrequency || c.StreamingConnectionIdleTimeout != d.StreamingConnectionIdleTimeout || c.CgroupDriver != "systemd" {
		t.Errorf("zero does not stand for the default: %v, %v, %s", c.SyncFrequency, c.StreamingConnectionIdleTimeout, c.CgroupDriver)
	}
}

func TestSomeDefaultsDependOnOtherFields(t *testing.T) {
	directory := write(t, map[string]string{"file": head + "nodeStatusUpdateFrequency: 7s\nmaxParallelImagePulls: 3\npodPidsLimit: -1\nreadOnlyPort: 0\n"})
	s, err := Load([]string{"--config", directory + "/file"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Configuration
	if c.NodeStatusReportFrequency != c.NodeStatusUpdateFrequency || *c.SerializeImagePulls || *c.PodPidsLimit != -1 || c.ReadOnlyPort != 0 {
		t.Errorf("%v, %t, %d, %d", c.NodeStatusReportFrequency, *c.SerializeImagePulls, *c.PodPidsLimit, c.ReadOnlyPort)
	}
	if s, err = Load([]string{"--node-status-update-frequency=7s"}, noVariables); err != nil || s.Configuration.NodeStatusReportFrequency != Default().NodeStatusReportFrequency {
		t.Errorf("a flag makes the default of another field follow, as it does not of kubelet: %v", err)
	}
}

func TestOnlyThePreviousReleasesHiddenMetricsMayBeShown(t *testing.T) {
	for _, test := range []struct{ asked, reported, want string }{
		{"1.35", "false", ""}, {"", "false", ""}, {"1.27", "v1.28.3", ""},
		{"1.36", "false", `"1.36": must be 1.35, the minor release before the one that svclet reports, or left out`},
		{"v1.35", "false", `"v1.35": must be 1.35, the minor release before the one that svclet reports, or left out`},
		{"1.35", "v1.28.3", `"1.35": must be 1.27, the minor release before the one that svclet reports, or left out`},
	} {
		file := write(t, map[string]string{"file": head + "showHiddenMetricsForVersion: \"" + test.asked + "\"\n"}) + "/file"
		want := []string{file + ":3: showHiddenMetricsForVersion is " + test.want}
		if test.want == "" {
			want = nil
		}
		if got := problems(t, "--config", file, "--version="+test.reported); !slices.Equal(got, want) {
			t.Errorf("%q with --version=%s: %q, want %q", test.asked, test.reported, got, want)
		}
	}
}

func TestRequestsHaveARateLimitOnlyIfConfigured(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "0 0 false",
		"--svc-api-qps=50":                      "50 100 true",
		"--kube-api-qps=0":                      "50 100 true",
		"--svc-api-qps=5 --svc-api-burst=7":     "5 7 true",
		"--kube-api-burst=7":                    "50 7 true",
		"--event-qps=7 --svc-api-content-type=": "",
	} {
		s, err := Load(strings.Fields(args), noVariables)
		if want == "" {
			if err == nil {
				t.Errorf("%s is taken", args)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		qps, burst, limited := s.RateLimit()
		if got := fmt.Sprint(qps, burst, limited); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func TestBadFilesAreRefusedByLine(t *testing.T) {
	inputs, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("there are no bad files: %v", err)
	}
	for _, input := range inputs {
		got := strings.Join(problems(t, "--config="+input), "\n") + "\n"
		golden.Assert(t, got, "bad/"+strings.TrimSuffix(filepath.Base(input), ".yaml")+".txt")
	}
}

func TestADropInsErrorsNameIt(t *testing.T) {
	directory := write(t, map[string]string{"file": head + "maxPods: 1\n", "d/10.conf": head + "\nmaxPod: 1\n", "d/20.conf": head + "port: 70000\n"})
	got := problems(t, "--config", directory+"/file", "--config-dir", directory+"/d")
	want := []string{
		directory + `/d/10.conf:4: unknown field "maxPod"; did you mean "maxPods"?`,
		directory + "/d/20.conf:3: port (--port) is 70000: must be from 1 to 65535",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestGatesAreSetByNameStageAndAll(t *testing.T) {
	for _, test := range []struct {
		args, on, off string
	}{
		{on: "AppArmor LoggingBetaOptions WindowsHostNetwork", off: "NodeSwap LoggingAlphaOptions CSIMigrationPortworx"},
		{args: "--feature-gates=NodeSwap=true,AppArmor=false", on: "NodeSwap", off: "AppArmor"},
		{args: "--feature-gates=AllAlpha=true", on: "LoggingAlphaOptions InTreePluginvSphereUnregister", off: "NodeSwap"},
		{args: "--feature-gates=KubeletInUserNamespace=true", on: "SvcletInUserNamespace"},
		{args: "--feature-gates=AllBeta=false,AppArmor=true", on: "AppArmor", off: "LoggingBetaOptions SvcletTracing"},
	} {
		s, err := Load(strings.Fields(test.args), noVariables)
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		for _, gate := range featuregates.All() {
			enabled := s.FeatureGates.Enabled(feature(gate.Name))
			if slices.Contains(strings.Fields(test.on), gate.Name) && !enabled || slices.Contains(strings.Fields(test.off), gate.Name) && enabled {
				t.Errorf("%s: %s is %t", test.args, gate.Name, enabled)
			}
		}
	}
}

func TestSecretPartsOfTheManifestURLAreNotShown(t *testing.T) {
	s, err := Load([]string{"--manifest-url-header=Authorization:secret"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprint(Shown(s.Configuration).StaticPodURLHeader); shown != "map[Authorization:[<masked>]]" {
		t.Errorf("shown is %s", shown)
	}
	for given, want := range map[string]string{
		"":                             "",
		"http://pods.example/a":        "http://pods.example/a",
		"https://me:secret@a:8/b?t=s#": "https://a:8/b",
	} {
		if shown := Shown(&Configuration{StaticPodURL: given}).StaticPodURL; shown != want {
			t.Errorf("%s is shown as %s", given, shown)
		}
	}
	for _, problem := range problems(t, "--manifest-url-header=secret") {
		if strings.Contains(problem, "secret") {
			t.Errorf("an error shows it: %s", problem)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load([]string{"--config=testdata/kubeadm.yaml", "--max-pods=5"}, noVariables); err != nil {
			b.Fatal(err)
		}
	}
}

func TestEvictionThresholdsReplaceTheDefaults(t *testing.T) {
	for _, test := range []struct {
		rule, file, flag string
		want             map[string]string
	}{
		{"the defaults", "", "", defaultEvictionHard()},
		{"a file replaces them", "evictionHard: {memory.available: 1Gi}\n", "", map[string]string{"memory.available": "1Gi"}},
		{"a file adds to them if it says so", "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n", "",
			map[string]string{"memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"}},
		{"an empty map in a file turns them off", "evictionHard: {}\n", "", map[string]string{}},
		{"an empty flag turns them off", "", "--eviction-hard=", map[string]string{}},
		{"a flag replaces them", "evictionHard: {memory.available: 1Gi}\n", "--eviction-hard=pid.available<5%", map[string]string{"pid.available": "5%"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			directory := write(t, map[string]string{"file": head + test.file})
			args := []string{"--logging-format=text", "--config=" + directory + "/file"}
			if test.flag != "" {
				args = append(args, test.flag)
			}
			s, err := Load(args, noVariables)
			if err != nil || !maps.Equal(s.Configuration.EvictionHard, test.want) {
				t.Errorf("got %v, %v, want %v", s, err, test.want)
			}
		})
	}
}

func TestErrorsAboutASettingNameItsPlaceInAFile(t *testing.T) {
	file := write(t, map[string]string{"c.yaml": head + "reservedSystemCPUs: 0-3\nauthentication:\n  x509:\n    clientCAFile: /missing\n"}) + "/c.yaml"
	byFile, err := Load([]string{"--config", file, "--max-pods=5"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	byFlag, err := Load([]string{"--config", file, "--reserved-cpus=1", "--client-ca-file=/other"}, noVariables)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		settings  *Settings
		text, got string
	}{
		{byFile, "--reserved-cpus: the machine has no CPUs 3", file + ":3: --reserved-cpus: the machine has no CPUs 3"},
		{byFile, "client authorities (--client-ca-file): open /missing", file + ":6: client authorities (--client-ca-file): open /missing"},
		{byFlag, "--reserved-cpus: the machine has no CPUs 3", "--reserved-cpus: the machine has no CPUs 3"},
		{byFlag, "client authorities (--client-ca-file): open /other", "client authorities (--client-ca-file): open /other"},
		{byFile, "--root-dir: no space", "--root-dir: no space"},
		{byFile, "--no-such-flag: a", "--no-such-flag: a"},
		{byFile, "stop it, or choose another --reserved-cpus", "stop it, or choose another --reserved-cpus"},
	} {
		if got := test.settings.Locate(errors.New(test.text)); got.Error() != test.got {
			t.Errorf("%s: got %v", test.got, got)
		}
	}
	if byFile.Locate(nil) != nil {
		t.Error("nothing is an error")
	}
}
