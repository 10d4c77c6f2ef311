package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testclock "k8s.io/utils/clock/testing"
)

// network is a fake network.
type network struct {
	names    map[string]string
	standard string
	local    []string
}

func (n network) Lookup(_ context.Context, name string) ([]net.IP, error) {
	if ip := net.ParseIP(n.names[name]); ip != nil {
		return []net.IP{ip}, nil
	}
	return nil, errors.New("no such host")
}

func (n network) Default(net.IP) (net.IP, error) {
	if ip := net.ParseIP(n.standard); ip != nil {
		return ip, nil
	}
	return nil, errors.New("no default routes")
}

func (n network) Local() (ips []net.IP, _ error) {
	for _, ip := range n.local {
		ips = append(ips, net.ParseIP(ip))
	}
	return ips, nil
}

func TestAddresses(t *testing.T) {
	local := []string{"127.0.0.1", "::1", "10.0.0.1", "fd00::1", "fe80::1"}
	for name, c := range map[string]struct {
		host    string
		ips     []string
		network network
		want    string
		note    string
		err     string
	}{
		"given":            {ips: []string{"10.0.0.1"}, network: network{local: local}, want: "10.0.0.1"},
		"given twice":      {ips: []string{"fd00::1", "10.0.0.1"}, network: network{local: local}, want: "fd00::1 10.0.0.1"},
		"given, elsewhere": {ips: []string{"10.0.0.2"}, network: network{local: local}, err: "not found in the host's network interfaces"},
		"given, loopback":  {ips: []string{"127.0.0.1"}, network: network{local: local}, err: "can't be loopback"},
		"hostname":         {host: "192.0.2.7", network: network{local: local}, want: "192.0.2.7"},
		"name":             {network: network{names: map[string]string{"n": "10.0.0.1"}, standard: "10.0.0.9", local: local}, want: "10.0.0.1"},
		"name of loopback": {network: network{names: map[string]string{"n": "127.0.0.1"}, standard: "10.0.0.9", local: local}, want: "10.0.0.9"},
		"default route":    {network: network{standard: "10.0.0.9", local: local}, want: "10.0.0.9"},
		"no route":         {network: network{local: local}, want: "10.0.0.1", note: "no default route"},
		"no route, IPv6":   {ips: []string{"::"}, network: network{local: local}, want: "fd00::1", note: "no default route"},
		"no network":       {network: network{local: local[:2]}, want: "127.0.0.1", note: "no network"},
		"nothing whatever": {network: network{}, err: "can't get ip address of node n"},
	} {
		o := &Options{Name: "n", Hostname: "host", Network: c.network}
		if c.host != "" {
			o.Hostname = c.host
		}
		for _, ip := range c.ips {
			o.IPs = append(o.IPs, net.ParseIP(ip))
		}
		found, note, err := addresses(t.Context(), o)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var ips []string
		for _, a := range found {
			if a.Type == corev1.NodeInternalIP {
				ips = append(ips, a.Address)
			}
		}
		if err != nil || strings.Join(ips, " ") != c.want || !strings.Contains(note, c.note) || (note == "") != (c.note == "") {
			t.Errorf("%s: %v, %q, %v", name, found, note, err)
		}
		if last := found[len(found)-1]; last.Type != corev1.NodeHostName || last.Address != o.Hostname {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestCapacityAndAllocatable(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	o := &Options{
		MaxPods: 110, PodsPerCore: 10,
		Machine:  Machine{CPUs: 2, Memory: 1 << 30, Storage: 10 << 30, HugePages: map[int64]int64{2 << 20: 4}},
		Reserved: list("cpu", "500m", "memory", "100Mi", "ephemeral-storage", "20Gi"),
	}
	before := list("example.com/gpu", "3", "cpu", "64", "hugepages-1Gi", "1Gi")
	got := capacity(o, before)
	want := list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "10Gi", "hugepages-2Mi", "8Mi", "pods", "20", "example.com/gpu", "3")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("capacity:", diff)
	}
	free := list("cpu", "1500m", "memory", "916Mi", "ephemeral-storage", "0", "hugepages-2Mi", "8Mi", "pods", "20", "example.com/gpu", "3")
	if diff := cmp.Diff(free, allocatable(got, o.Reserved)); diff != "" {
		t.Error("allocatable:", diff)
	}
}

func status(ready, network bool) RuntimeStatus {
	return RuntimeStatus{Name: "containerd", Version: "1.6.20", Conditions: []*runtimeapi.RuntimeCondition{
		{Type: "RuntimeReady", Status: ready, Reason: "R", Message: "why"},
		{Type: "NetworkReady", Status: network, Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
	}}
}

func TestReadyFollowsTheRuntimesConditions(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	var answer RuntimeStatus
	var failure error
	pressure := Pressure{}
	n, err := New(Options{
		Name: "n", Hostname: "n", Network: network{standard: "10.0.0.1"}, Clock: clock,
		Machine:  Machine{CPUs: 1, Memory: 1, Storage: 1, BootID: "b"},
		Runtime:  func(context.Context) (RuntimeStatus, error) { return answer, failure },
		Pressure: func() Pressure { return pressure },
	})
	if err != nil {
		t.Fatal(err)
	}
	node := n.first
	ready := func() *corev1.NodeCondition {
		clock.Step(10 * time.Second)
		node = n.describe(t.Context(), node)
		return condition(node.Status.Conditions, corev1.NodeReady)
	}
	steps := []struct {
		answer  RuntimeStatus
		failure error
		want    string
	}{
		{failure: errors.New("refused"), want: "container runtime status check may not have completed yet"},
		{answer: status(true, false), want: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"},
		{answer: status(true, true)},
		{failure: errors.New("refused")},
		{failure: errors.New("refused")},
		{failure: errors.New("refused"), want: "container runtime is down"},
		{answer: status(true, true)},
		{answer: status(false, true), want: "container runtime not ready: RuntimeReady=false reason:R message:why"},
		{answer: RuntimeStatus{}, want: "[container runtime not ready: the runtime does not report RuntimeReady, container runtime network not ready: the runtime does not report NetworkReady]"},
		{answer: status(true, true)},
	}
	for i, step := range steps {
		answer, failure = step.answer, step.failure
		switch c := ready(); {
		case step.want == "" && (c.Status != corev1.ConditionTrue || c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status"):
			t.Errorf("step %d: not ready: %s", i, c.Message)
		case step.want != "" && (c.Status != corev1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != step.want):
			t.Errorf("step %d: %s %s %s", i, c.Status, c.Reason, c.Message)
		}
	}
	since := condition(node.Status.Conditions, corev1.NodeReady).LastTransitionTime
	pressure.Memory = true
	if c := ready(); !c.LastTransitionTime.Equal(&since) || c.LastHeartbeatTime.Equal(&since) {
		t.Error("times of a condition that stays")
	}
	if c := condition(node.Status.Conditions, corev1.NodeMemoryPressure); c.Status != corev1.ConditionTrue || c.Reason != "KubeletHasInsufficientMemory" {
		t.Errorf("memory pressure: %v", c)
	}
	var kinds []string
	for _, c := range node.Status.Conditions {
		kinds = append(kinds, string(c.Type))
	}
	if want := []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}; !slices.Equal(kinds, want) {
		t.Errorf("conditions %v", kinds)
	}
	if got := node.Status.NodeInfo.ContainerRuntimeVersion; got != "containerd://1.6.20" {
		t.Errorf("runtime %s", got)
	}
}

func TestTheLargestImagesAreShown(t *testing.T) {
	many := corev1.ContainerImage{Names: []string{"1", "2", "3", "4", "5", "6"}, SizeBytes: 5}
	all := []corev1.ContainerImage{{Names: []string{"a"}, SizeBytes: 1}, many, {Names: []string{"b"}, SizeBytes: 9}}
	got := largest(all, 2)
	if len(got) != 2 || got[0].SizeBytes != 9 || len(got[1].Names) != 5 {
		t.Errorf("got %v", got)
	}
	if got := largest(all, -1); len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

func TestAPatchReplacesAddresses(t *testing.T) {
	address := func(ips ...string) *corev1.Node {
		n := &corev1.Node{}
		n.UID = "u"
		for _, ip := range ips {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: "InternalIP", Address: ip})
		}
		return n
	}
	for name, c := range map[string]struct {
		from, to *corev1.Node
		want     string
	}{
		"the same":  {address("a"), address("a"), `{"metadata":{"uid":"u"}}`},
		"another":   {address("a"), address("b"), `{"metadata":{"uid":"u"},"status":{"addresses":[{"address":"b","type":"InternalIP"},{"$patch":"replace"}]}}`},
		"the first": {address(), address("a", "b"), `{"metadata":{"uid":"u"},"status":{"addresses":[{"address":"a","type":"InternalIP"},{"address":"b","type":"InternalIP"},{"$patch":"replace"}]}}`},
	} {
		if got, err := statusPatch(c.from, c.to); err != nil || normal(string(got)) != normal(c.want) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// normal returns JSON in which the two fields of an address have a fixed order.
func normal(s string) string {
	for _, ip := range []string{"a", "b"} {
		s = strings.ReplaceAll(s, `{"type":"InternalIP","address":"`+ip+`"}`, `{"address":"`+ip+`","type":"InternalIP"}`)
	}
	return s
}

func capacityOne() resource.Quantity { return resource.MustParse("1") }

func TestReservationsOverTheCapacityAreRefused(t *testing.T) {
	machine := Machine{CPUs: 2, Memory: 1 << 30, Storage: 1 << 30}
	for want, reserved := range map[string]corev1.ResourceList{
		"": {corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), "pid": resource.MustParse("100")},
		"--svc-reserved, --system-reserved and --reserved-cpus keep 2500m of cpu from pods, and the node has 2: reserve less": {corev1.ResourceCPU: resource.MustParse("2500m")},
	} {
		_, err := New(Options{Name: "n", Machine: machine, Reserved: reserved})
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v: %v, want %q", reserved, err, want)
		}
	}
}
