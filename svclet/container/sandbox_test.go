package container

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, test := range []struct {
		name         string
		change       func(*corev1.Pod)
		want, domain string
		kernel, err  string
	}{
		{name: "the pod's name", change: func(*corev1.Pod) {}, want: "web", kernel: "web"},
		{name: "a name of its own", change: func(p *corev1.Pod) { p.Spec.Hostname = "box" }, want: "box", kernel: "box"},
		{name: "a long name", change: func(p *corev1.Pod) { p.Name = long + "-bcdefg" }, want: long + "-bc", kernel: long + "-bc"},
		{name: "a long name, cut at a dash", change: func(p *corev1.Pod) { p.Name = long + "--.-bcd" }, want: long, kernel: long},
		{name: "a subdomain", change: func(p *corev1.Pod) { p.Spec.Subdomain = "sub" }, want: "web", domain: "sub.shop.svc.cluster.local", kernel: "web"},
		{name: "with its domain", change: func(p *corev1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "sub", ptr.To(true) },
			want: "web", domain: "sub.shop.svc.cluster.local", kernel: "web.sub.shop.svc.cluster.local"},
		{name: "too long with its domain", change: func(p *corev1.Pod) {
			p.Name, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = long[:40], "sub", ptr.To(true)
		}, err: "failed to construct FQDN from pod hostname and cluster domain, FQDN " + long[:40] +
			".sub.shop.svc.cluster.local is too long (64 characters is the max, 67 characters requested)"},
		{name: "an override", change: func(p *corev1.Pod) {
			p.Spec.HostnameOverride, p.Spec.Hostname, p.Spec.Subdomain = ptr.To("any.name.example"), "box", "sub"
		}, want: "any.name.example", kernel: "any.name.example"},
		{name: "no name", change: func(p *corev1.Pod) { p.Spec.Hostname = "Not.A.Label" }, err: `pod Hostname "Not.A.Label" is not a valid DNS label: `},
		{name: "no subdomain", change: func(p *corev1.Pod) { p.Spec.Subdomain = "a.b" }, err: `pod Subdomain "a.b" is not a valid DNS label: `},
		{name: "no override", change: func(p *corev1.Pod) { p.Spec.HostnameOverride = ptr.To("A_B") }, err: `pod HostnameOverride "A_B" is not a valid DNS subdomain: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod()
			test.change(pod)
			kernel, err := kernelHostname(testOptions(), pod)
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			name, domain, nameErr := Hostname(testOptions(), pod)
			if err != nil || nameErr != nil || name != test.want || domain != test.domain || kernel != test.kernel {
				t.Errorf("%q, %q, %q, %v, want %q, %q, %q", name, domain, kernel, err, test.want, test.domain, test.kernel)
			}
		})
	}
}

func TestHostsFile(t *testing.T) {
	pod := testPod()
	pod.Spec.Subdomain = "sub"
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"a.example", "b.example"}}}
	got, err := HostsFile(testOptions(), pod, []string{"10.0.0.7", "fd00::7"}, nil)
	want := "# Kubernetes-managed hosts file.\n" +
		"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.0.0.7\tweb.sub.shop.svc.cluster.local\tweb\nfd00::7\tweb.sub.shop.svc.cluster.local\tweb\n" +
		"\n# Entries added by HostAliases.\n192.0.2.9\ta.example\tb.example\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(got)))
	}

	pod = testPod()
	pod.Spec.HostNetwork = true
	got, err = HostsFile(testOptions(), pod, nil, []byte("127.0.0.1 node\n"))
	if want := "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"; err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(got)))
	}
}

func TestDNS(t *testing.T) {
	for _, test := range []struct {
		name     string
		policy   corev1.DNSPolicy
		change   func(*SandboxInput)
		want     *runtimeapi.DNSConfig
		warnings []string
	}{
		{name: "no name server of the cluster's", policy: corev1.DNSClusterFirst, change: func(in *SandboxInput) { in.Options.ClusterDNS = nil },
			want:     &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53", "2001:db8::53"}, Searches: []string{"example.com", "corp.example.com"}, Options: []string{"edns0", "ndots:2", "timeout:3"}},
			warnings: []string{`MissingClusterDNS: pod: "web_shop(u-1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`}},
		{name: "no domain of the cluster's", policy: corev1.DNSClusterFirst, change: func(in *SandboxInput) { in.Options.ClusterDomain = "" },
			want: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"example.com", "corp.example.com"}, Options: []string{"ndots:5"}}},
		{name: "no resolv.conf", policy: corev1.DNSDefault, change: func(in *SandboxInput) {
			in.Options.ResolvConf = ""
			in.Options.NodeIPs = append(in.Options.NodeIPs, netip.MustParseAddr("2001:db8::1"))
		}, want: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1", "::1"}, Searches: []string{"."}}},
		{name: "neither resolv.conf nor address", policy: corev1.DNSDefault, change: func(in *SandboxInput) { in.Options.ResolvConf, in.Options.NodeIPs = "", nil },
			want: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}, Searches: []string{"."}}},
		{name: "no resolv.conf, and the cluster's name server", policy: corev1.DNSClusterFirst, change: func(in *SandboxInput) { in.Options.ResolvConf = "" },
			want: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}, Options: []string{"ndots:5"}}},
		{name: "an unknown policy", policy: "Odd", change: func(*SandboxInput) {},
			want: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "corp.example.com"}, Options: []string{"ndots:5"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var warnings []string
			in := SandboxInput{Options: testOptions(), Pod: testPod(), Warn: func(reason, message string) { warnings = append(warnings, reason+": "+message) }}
			in.Pod.Spec.DNSPolicy = test.policy
			test.change(&in)
			got, err := dns(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
			if !slices.Equal(warnings, test.warnings) {
				t.Errorf("warnings %v, want %v", warnings, test.warnings)
			}
		})
	}
}

func TestSearchDomainsAreLimited(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = strings.Repeat("a", i+1)
	}
	wide := make([]string, 12)
	for i := range wide {
		wide[i] = strings.Repeat("b", 200) + string(rune('a'+i))
	}
	for _, test := range []struct {
		name     string
		searches []string
		want     int
	}{
		{"as many as there may be", many[:32], 32},
		{"too many", many, 32},
		{"too long a name", []string{"a", strings.Repeat("x", 254), "b"}, 2},
		{"too long a line", wide, 10},
	} {
		config := &runtimeapi.DNSConfig{Searches: slices.Clone(test.searches)}
		warned := false
		limitDNS(config, func(reason, message string) {
			warned = reason == "DNSConfigForming" && strings.HasSuffix(message, "the applied search line is: "+strings.Join(config.Searches, " "))
		})
		if len(config.Searches) != test.want || warned != (test.want < len(test.searches)) {
			t.Errorf("%s: %d domains, warned %v, want %d", test.name, len(config.Searches), warned, test.want)
		}
	}
}

func TestAResolvConfThatPodsCannotHaveIsAProblem(t *testing.T) {
	domains := func(count, length int) string {
		return strings.Repeat(" "+strings.Repeat("a", length), count)
	}
	for _, test := range []struct{ rule, content, domain, want string }{
		{"as many domains as there may be", "search" + domains(29, 5), "cluster.local", ""},
		{"one more", "search" + domains(30, 5), "cluster.local", "consisting of more than 29 domains!"},
		{"that a cluster without a domain allows", "search" + domains(32, 5), "", ""},
		{"too many for that, too", "search" + domains(33, 5), "", "consisting of more than 32 domains!"},
		{"the longest domain", "search" + domains(1, 253), "cluster.local", ""},
		{"a longer one", "search a" + domains(1, 254), "cluster.local", "a search path which length is more than allowed 253 chars!"},
		{"the longest line", "search" + domains(8, 227) + domains(1, 224), "cluster.local", ""},
		{"a longer line", "search" + domains(8, 227) + domains(1, 225), "cluster.local", "contains search line which length is more than allowed 2048 chars!"},
		{"a file that cannot be read", "nameserver", "", "nameserver list is empty"},
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ResolvConfProblem(file, test.domain)
		if !strings.HasSuffix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
	if got := ResolvConfProblem(filepath.Join(t.TempDir(), "none"), ""); !strings.Contains(got, "no such file") {
		t.Errorf("without a file: %q", got)
	}
}

func TestParseResolvConf(t *testing.T) {
	config, err := ParseResolvConf(strings.NewReader("nameserver 1.1.1.1 junk\n#nameserver 2.2.2.2\n\tsearch a. b\nsearch .\nsearch c.\noptions a:1 b\noptions a:2\nsortlist x"))
	want := &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"c"}, Options: []string{"a:2", "b"}}
	if diff := cmp.Diff(want, config, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := ParseResolvConf(strings.NewReader("nameserver")); err == nil {
		t.Error("a name server without an address was read")
	}
	if _, err := ParseResolvConf(strings.NewReader(strings.Repeat("#", maxResolvConf+1))); err == nil {
		t.Error("an endless file was read")
	}
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 1.1.1.1\nsearch a b.\noptions ndots:5 x")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := ParseResolvConf(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, list := range [][]string{config.Servers, config.Searches, config.Options} {
			for _, word := range list {
				if strings.ContainsAny(word, " \t\n") {
					t.Errorf("%q has the word %q", text, word)
				}
			}
		}
	})
}

func TestReadHost(t *testing.T) {
	root := t.TempDir()
	write := func(path, content string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadHost(root); err == nil {
		t.Error("a machine without memory was read")
	}
	write("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nSwapTotal:       1024 kB\n")
	host, err := ReadHost(root)
	if diff := cmp.Diff(Host{MemoryCapacity: 2 << 20, SwapCapacity: 1 << 20}, host); err != nil || diff != "" {
		t.Errorf("a bare machine: %v\n%s", err, diff)
	}
	write("proc/swaps", "")
	write("sys/fs/cgroup/cgroup.controllers", "cpu memory")
	write("sys/fs/cgroup/system.slice/memory.swap.max", "max")
	write("sys/fs/selinux/enforce", "1")
	write("sys/module/apparmor/parameters/enabled", "Y\n")
	write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0")
	write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0")
	write("sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "0")
	write("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "0")
	host, err = ReadHost(root)
	want := Host{
		MemoryCapacity: 2 << 20, SwapCapacity: 1 << 20, CgroupV2: true, SwapController: true, AppArmor: true, SELinux: true,
		HugepageSizes:   []string{"1GB", "2MB", "64KB"},
		ThermalThrottle: []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"},
	}
	if diff := cmp.Diff(want, host); err != nil || diff != "" {
		t.Errorf("a machine with all: %v\n%s", err, diff)
	}
}

func TestDefaultSysctlsAreThoseOfThePodsOwnNamespaces(t *testing.T) {
	defaults := map[string]string{
		"net/ipv4/ip_forward": "1", "kernel.shmall": "2", "kernel.domainname": "example.com", "user.max_user_namespaces": "3", "vm.swappiness": "4",
	}
	for _, test := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   map[string]string
	}{
		{"a pod of its own", func(*corev1.PodSpec) {}, map[string]string{"net.ipv4.ip_forward": "1", "kernel.shmall": "2", "kernel.domainname": "example.com"}},
		{"on the host's network", func(s *corev1.PodSpec) { s.HostNetwork = true }, map[string]string{"kernel.shmall": "2"}},
		{"with the host's IPC", func(s *corev1.PodSpec) { s.HostIPC = true }, map[string]string{"net.ipv4.ip_forward": "1", "kernel.domainname": "example.com"}},
		{"with users of its own", func(s *corev1.PodSpec) { s.HostUsers, s.HostNetwork = ptr.To(false), true }, map[string]string{"kernel.shmall": "2", "user.max_user_namespaces": "3"}},
		{"that sets one", func(s *corev1.PodSpec) {
			s.HostNetwork, s.SecurityContext = true, &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel/shmall", Value: "9"}}}
		}, map[string]string{"kernel.shmall": "9"}},
	} {
		p := &corev1.Pod{}
		test.change(&p.Spec)
		if diff := cmp.Diff(test.want, sysctls(defaults, p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	if got := sysctls(nil, &corev1.Pod{}); got != nil {
		t.Errorf("without defaults: %v", got)
	}
}
