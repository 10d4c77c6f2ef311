//go:build linux

package proxy

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/nft"
	"svc.dev/svc/svclet/services"
)

// These are the rules that package containerd adds to the chain FORWARD, beside its policy.
func TestANodePortLeadsToAPodOfAnotherNodeIfOnlyMarkedPacketsAndTheirAnswersAreForwarded(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		for _, command := range []string{
			"iptables -P FORWARD DROP", "iptables -A FORWARD -m mark --mark " + nft.MasqueradeMark + "/" + nft.MasqueradeMark + " -j ACCEPT",
			"iptables -A FORWARD -m conntrack --ctstate DNAT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		} {
			args := strings.Fields(command)
			out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput() //nolint:gosec // The test names the program.
			if errors.Is(err, exec.ErrNotFound) {
				t.Log(err)
				return
			}
			if err != nil {
				t.Errorf("%s: %v: %s", command, err, out)
			}
		}
		p := newKernelProxy(t, services.New())
		client, err := newNeighbor(t, "out", "198.51.100.1", "198.51.100.2")
		far, err2 := newNeighbor(t, "far", "192.0.3.1", "192.0.3.2")
		if err := errors.Join(err, err2, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)); err != nil || p == nil {
			t.Error(err)
			return
		}
		web := service("web", "10.96.0.1")
		web.Spec.Ports[0].NodePort = 30080
		err = p.options.Services.Services().Replace([]any{web}, "")
		err2 = p.options.Services.EndpointSlices().Replace([]any{slice("web", "web", "192.0.3.2")}, "")
		if err := errors.Join(err, err2); err != nil || !p.sync(t.Context()) {
			t.Error(err, p.Problem())
			return
		}
		if _, server, err := connect(t, client, far, "198.51.100.1:30080", "192.0.3.2:8080"); err != nil || !strings.HasPrefix(server.RemoteAddr().String(), "192.0.3.1:") {
			t.Errorf("the connection fails, or has not the address of the node: %v", err)
		}
	})
}

// The kernel routes no packet from ::1 to a pod, and a program may listen there.
func TestANodePortIsNotAtTheLoopbackAddressOfIPv6InTheKernel(t *testing.T) {
	netnstest.Run(t, "nft", func(t *testing.T) {
		flow := udpFlow{family: corev1.IPv6Protocol, of: discoveryv1.AddressTypeIPv6, ip: "fd00:96::1"}
		p := newKernelProxy(t, services.New())
		program, err := net.ListenPacket("udp", "[::1]:30053")
		if err != nil || p == nil {
			t.Error(err)
			return
		}
		answerUDP(t, program, "program")
		serveUDP(t, "fd00:244::5", "endpoint")
		names := service("names", flow.ip)
		names.Spec.IPFamilies, names.Spec.Ports[0] = []corev1.IPFamily{flow.family}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, Port: 53, NodePort: 30053}
		if err := p.options.Services.Services().Replace([]any{names}, ""); err != nil {
			t.Error(err)
		}
		for _, endpoints := range [][]any{nil, {flow.slice("fd00:244::5")}} {
			if err := p.options.Services.EndpointSlices().Replace(endpoints, ""); err != nil || !p.sync(t.Context()) {
				t.Error(err, p.Problem())
			}
			c, err := net.Dial("udp", "[::1]:30053")
			if err != nil {
				t.Error(err)
				return
			}
			if got := ask(c); got != "program" {
				t.Errorf("with %d endpoint slices, %q answers", len(endpoints), got)
			}
			c.Close()
		}
	})
}
