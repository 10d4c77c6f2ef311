package nodeconfig

import (
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/config"
)

func TestHostNameIsTheOverrideInLowerCase(t *testing.T) {
	for override, want := range map[string]string{"node-1": "node-1", " Node.Example ": "node.example"} {
		if got, err := HostName(override); err != nil || got != want {
			t.Errorf("HostName(%q) = %q, %v, want %q", override, got, err, want)
		}
	}
	if _, err := HostName("my_machine"); err == nil || !strings.HasPrefix(err.Error(), `--hostname-override: "my_machine" cannot name a node: `) {
		t.Errorf("HostName of an invalid name returns %v", err)
	}
}

func TestNodeIPIsOneAddressOrOneOfEachFamily(t *testing.T) {
	for _, test := range []struct {
		flag string
		want []net.IP
		err  string
	}{
		{flag: ""},
		{flag: "192.0.2.1", want: []net.IP{net.ParseIP("192.0.2.1")}},
		{flag: "2001:db8::1, 192.0.2.1", want: []net.IP{net.ParseIP("2001:db8::1"), net.ParseIP("192.0.2.1")}},
		{flag: "::", want: []net.IP{net.IPv6unspecified}},
		{flag: "nowhere", err: `--node-ip: invalid IP address "nowhere"`},
		{flag: "192.0.2.1,192.0.2.2", err: `--node-ip: invalid value "192.0.2.1,192.0.2.2": must be one IP address, or one of each IP family`},
		{flag: "192.0.2.1,::1,::2", err: `--node-ip: invalid value "192.0.2.1,::1,::2": must be one IP address, or one of each IP family`},
	} {
		got, err := ParseNodeIPs(test.flag)
		switch {
		case test.err != "" && (err == nil || err.Error() != test.err):
			t.Errorf("%q: got error %v, want %s", test.flag, err, test.err)
		case test.err == "" && (err != nil || !slices.EqualFunc(got, test.want, net.IP.Equal)):
			t.Errorf("%q: got %v, %v, want %v", test.flag, got, err, test.want)
		}
	}
}

func TestHostIPsAreTheFirstTwoInternalAddresses(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "node"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.3"},
	}}}
	if got := HostIPs(node); !slices.Equal(got, []string{"192.0.2.1", "2001:db8::1"}) {
		t.Errorf("HostIPs = %q", got)
	}
}

func TestReservedCPUsReplaceTheCPUsOfOtherReservations(t *testing.T) {
	c := config.Default()
	c.KubeReserved = map[string]string{"cpu": "1", "memory": "1Gi"}
	c.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi"}
	r, err := ParseReservations(c)
	if err != nil {
		t.Fatal(err)
	}
	if total := r.Total(); total.Cpu().MilliValue() != 1500 || total.Memory().Value() != 2<<30 {
		t.Errorf("without --reserved-cpus the total is %v", total)
	}
	c.ReservedSystemCPUs = "0,2-3"
	if r, err = ParseReservations(c); err != nil {
		t.Fatal(err)
	}
	total := r.Total()
	if _, set := r.Agent[corev1.ResourceCPU]; set || total.Cpu().Value() != 3 || total.Memory().Value() != 2<<30 {
		t.Errorf("with --reserved-cpus the total is %v", total)
	}
}

func TestInvalidReservationsAreRejected(t *testing.T) {
	for _, test := range []struct{ name, amount, want string }{
		{"cpu", "x", "--system-reserved: invalid quantity cpu=x: must be like 100m or 1Gi"},
		{"cpu", "-1", "--system-reserved: invalid quantity cpu=-1: must not be negative"},
		{"gpu", "1", "--system-reserved: unsupported resource gpu: must be cpu, memory, ephemeral-storage or pid"},
	} {
		c := config.Default()
		c.SystemReserved = map[string]string{test.name: test.amount}
		if _, err := ParseReservations(c); err == nil || err.Error() != test.want {
			t.Errorf("%s=%s: got %v, want %s", test.name, test.amount, err, test.want)
		}
	}
}

func TestQOSReservedIsThePercentageOfMemory(t *testing.T) {
	for text, want := range map[string]int{"": 0, "0%": 0, "50%": 50, "100%": 100} {
		reserved := map[string]string{"memory": text}
		if text == "" {
			reserved = nil
		}
		if got, err := ParseQOSReserved(reserved); err != nil || got != want {
			t.Errorf("%v: got %d, %v, want %d", reserved, got, err, want)
		}
	}
	if _, err := ParseQOSReserved(map[string]string{"memory": "half"}); err == nil {
		t.Error(`ParseQOSReserved accepts "half"`)
	}
}
