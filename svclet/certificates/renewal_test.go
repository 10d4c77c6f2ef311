package certificates

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
)

// client returns the client certificate of a node whose pair is in a directory.
func (s *apiServer) client(t *testing.T, dir, bootstrap string) *Client {
	t.Helper()
	pair := filepath.Join(dir, clientPair+"-current.pem")
	api, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig(t, &clientcmdapi.AuthInfo{ClientCertificate: pair, ClientKey: pair}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(ClientOptions{Node: "a", API: api, Bootstrap: bootstrap, Dir: dir, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs what renews a certificate until the test ends.
func run(t *testing.T, renew func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { renew(ctx) })
	t.Cleanup(func() { stop(); group.Wait() })
}

func TestRenewalKeepsRequestsInFlight(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.pair(t, dir, time.Now().Add(-time.Hour), time.Now().Add(time.Minute)) // 98 % of its life is over
	c := server.client(t, dir, "")
	httpClient, err := rest.HTTPClientFor(c.API())
	if err != nil {
		t.Fatal(err)
	}
	before := c.Current()
	stream, err := httpClient.Get(server.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = stream.Body.Read(make([]byte, 1)) }()
	run(t, c.Run)
	eventually(t, "the certificate is renewed", func() bool { return c.Current() != before })
	if sent := server.sent(); !slices.Equal(sent, []string{"system:node:a"}) {
		t.Errorf("requests were sent by %v", sent)
	}
	resp, err := httpClient.Get(server.URL + "/whoami")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp.Body.Close()
	select {
	case <-ended:
		t.Error("the renewal has ended a request in flight")
	default:
	}
	stream.Body.Close()
	<-ended
}

func TestARejectedCertificateIsReplacedWithTheBootstrapKubeconfig(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.pair(t, dir, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	c := server.client(t, dir, server.kubeconfig(t, &clientcmdapi.AuthInfo{Token: token}))
	server.mu.Lock()
	server.rejected[c.Current().Leaf.SerialNumber.String()] = true
	server.mu.Unlock()
	httpClient, err := rest.HTTPClientFor(c.API())
	if err != nil {
		t.Fatal(err)
	}
	run(t, c.Run)
	eventually(t, "the API server accepts the agent", func() bool {
		resp, err := httpClient.Get(server.URL + "/whoami")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	if sent := server.sent(); !slices.Equal(sent, []string{"token"}) {
		t.Errorf("requests were sent by %v", sent)
	}
}

func TestARejectionByMistakeDoesNotEndTheRenewalOnceTheBootstrapTokenHasExpired(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.pair(t, dir, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	c := server.client(t, dir, server.kubeconfig(t, &clientcmdapi.AuthInfo{Token: "abcdef.expired"}))
	before := c.Current()
	reject := func(rejected bool) {
		server.mu.Lock()
		defer server.mu.Unlock()
		server.rejected[before.Leaf.SerialNumber.String()] = rejected
	}
	httpClient, err := rest.HTTPClientFor(c.API())
	if err != nil {
		t.Fatal(err)
	}
	reject(true)
	resp, err := httpClient.Get(server.URL + "/whoami")
	if err != nil || resp.StatusCode != 401 {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp.Body.Close()
	reject(false)
	run(t, c.Run)
	eventually(t, "the certificate is renewed", func() bool { return c.Current() != before })
	if sent := server.sent(); !slices.Equal(sent, []string{"system:node:a"}) {
		t.Errorf("requests were sent by %v", sent)
	}
}

func TestAnExpiredCertificateIsReplacedWithTheBootstrapKubeconfig(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.pair(t, dir, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	c := server.client(t, dir, server.kubeconfig(t, &clientcmdapi.AuthInfo{Token: token}))
	if c.Current() != nil {
		t.Error("an expired certificate is in use")
	}
	run(t, c.Run)
	eventually(t, "there is a certificate", func() bool { return c.Current() != nil })
	if sent := server.sent(); !slices.Equal(sent, []string{"token"}) {
		t.Errorf("requests were sent by %v", sent)
	}
}

func TestServingCertificateHasTheAddressesOfTheNode(t *testing.T) {
	server, dir := newAPIServer(t), t.TempDir()
	server.pair(t, dir, time.Now().Add(-time.Minute), time.Now().Add(time.Hour))
	var mu sync.Mutex
	var addresses []corev1.NodeAddress
	set := func(ip string) {
		mu.Lock()
		defer mu.Unlock()
		addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: "a"}}
	}
	s, err := NewServing(ServingOptions{Node: "a", API: server.client(t, dir, "").API(), Dir: dir, Clock: clock.RealClock{}, Addresses: func() []corev1.NodeAddress {
		mu.Lock()
		defer mu.Unlock()
		return addresses
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(nil); err == nil {
		t.Error("there is a serving certificate before it is issued")
	}
	run(t, s.Run)
	for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
		set(ip)
		eventually(t, "the certificate is for "+ip, func() bool {
			pair, err := s.Get(nil)
			return err == nil && pair.Leaf.VerifyHostname(ip) == nil && pair.Leaf.VerifyHostname("a") == nil
		})
	}
}

func TestHostsOfAddresses(t *testing.T) {
	names, ips := Hosts([]corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
		{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalDNS, Address: "a.example"}, {Type: corev1.NodeInternalIP},
	})
	if !slices.Equal(names, []string{"a", "a.example"}) || len(ips) != 2 || ips[0].String() != "192.0.2.1" || ips[1].String() != "2001:db8::1" {
		t.Errorf("got %v, %v", names, ips)
	}
	if servingTemplate("a", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}}) != nil {
		t.Error("a certificate is requested before the node has an IP address")
	}
}
