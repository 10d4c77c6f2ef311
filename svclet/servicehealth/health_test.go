package servicehealth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/internal/footprint/leaks"
	"svc.dev/svc/svclet/services"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func serviceWith(port int32, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: port,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func sliceOf(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func endpoint(node, address string, ready bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
}

func TestReadyEndpointsOfTheNodeAreCountedOnce(t *testing.T) {
	here := endpoint("here", "10.0.0.1", true)
	unnamed := discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}}
	unconditional := endpoint("here", "10.0.0.8", true)
	unconditional.Conditions.Ready = nil
	headless := sliceOf("c", endpoint("here", "10.0.0.5", true))
	headless.Labels[corev1.IsHeadlessService] = ""
	all := []*discoveryv1.EndpointSlice{
		headless, // the proxy does not lead to its endpoints
		sliceOf("a", here, endpoint("there", "10.0.0.2", true), endpoint("here", "10.0.0.3", false), unnamed, discoveryv1.Endpoint{NodeName: here.NodeName}),
		sliceOf("b", here, endpoint("here", "10.0.0.4", true), unconditional),
	}
	for rule, test := range map[string]struct {
		service *corev1.Service
		want    health
	}{
		"a load balancer's, with traffic that stays on the node": {serviceWith(31000, nil), health{31000, 3}},
		"there is no service":         {nil, health{}},
		"traffic goes to other nodes": {serviceWith(31000, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "Cluster" }), health{}},
		"it has no load balancer":     {serviceWith(31000, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), health{}},
		"another proxy serves it": {serviceWith(31000, func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
		}), health{}},
	} {
		if got := healthOf(services.Object{Service: test.service, Slices: all}, "here", corev1.IPv4Protocol); got != test.want {
			t.Errorf("%s: %v, want %v", rule, got, test.want)
		}
	}
}

func TestEachFamilyOfAServiceHasItsOwnPortAndCount(t *testing.T) {
	second := sliceOf("six", endpoint("here", "fd00::1", true))
	second.AddressType = discoveryv1.AddressTypeIPv6
	object := services.Object{Slices: []*discoveryv1.EndpointSlice{sliceOf("four", endpoint("here", "10.0.0.1", true), endpoint("here", "10.0.0.2", true)), second}}
	for families, want := range map[string][2]health{
		"IPv4": {{31000, 2}, {}}, "IPv6": {{}, {31000, 1}}, "IPv4,IPv6": {{31000, 2}, {31000, 1}},
	} {
		object.Service = serviceWith(31000, func(s *corev1.Service) {
			s.Spec.IPFamilies = nil
			for family := range strings.SplitSeq(families, ",") {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(family))
			}
		})
		if got := [2]health{healthOf(object, "here", corev1.IPv4Protocol), healthOf(object, "here", corev1.IPv6Protocol)}; got != want {
			t.Errorf("%s: %v, want %v", families, got, want)
		}
	}
}

// machine has the listeners of servers, by network and port, at free ports of the loopback address.
type machine struct {
	mu        sync.Mutex
	addresses map[string]string
	open      map[string]bool
	busy      bool
	// without is a network that the machine does not have.
	without string
}

type opened struct {
	net.Listener
	closed func()
}

func (o opened) Close() error {
	o.closed()
	return o.Listener.Close()
}

func (m *machine) listen(network, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy {
		return nil, errors.New("address already in use")
	}
	if network == m.without {
		return nil, syscall.EAFNOSUPPORT
	}
	address = network + address
	if m.open[address] {
		return nil, fmt.Errorf("%s is in use", address)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.addresses[address], m.open[address] = listener.Addr().String(), true
	return opened{listener, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, address)
	}}, nil
}

func (m *machine) ports() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.open))
}

// get returns the status, the weight and the body of an answer.
func (m *machine) get(t *testing.T, port string) (int, string, report) {
	t.Helper()
	m.mu.Lock()
	address := m.addresses[port]
	m.mu.Unlock()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/anything")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), r
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	NewWithT(t).Eventually(holds).WithTimeout(time.Minute).Should(BeTrue(), what)
}

// A service whose port was in use may be deleted after its changes have been taken, and before the retry.
func TestTheRetryOfAServiceThatIsGoneOpensNoPort(t *testing.T) {
	store := services.New()
	for _, of := range []cache.ReflectorStore{store.Services(), store.EndpointSlices()} {
		if err := of.Replace(nil, "1"); err != nil {
			t.Fatal(err)
		}
	}
	m := &machine{addresses: map[string]string{}, open: map[string]bool{}}
	turned := clocktesting.NewFakeClock(time.Now())
	s := New(Options{Services: store, Node: "here", Clock: turned, Listen: m.listen})
	s.failed[key{services.Key{Namespace: "shop", Name: "web"}, corev1.IPv4Protocol}] = failure{31000, turned.Now()}
	s.sync(t.Context())
	if len(m.ports()) > 0 || len(s.running) > 0 || len(s.failed) > 0 {
		t.Errorf("ports %v are open, %d servers run, and %d are to be tried again", m.ports(), len(s.running), len(s.failed))
	}
}

func TestEachFamilyOfAServiceIsServedWhereTheMachineHasIt(t *testing.T) {
	for without, want := range map[string][]string{"": {"tcp4:31000 2", "tcp6:31000 1"}, "tcp6": {"tcp4:31000 2"}} {
		store := services.New()
		dual := serviceWith(31000, func(s *corev1.Service) { s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol) })
		four, six := sliceOf("four", endpoint("here", "10.0.0.1", true), endpoint("here", "10.0.0.2", true)), sliceOf("six", endpoint("here", "fd00::1", true))
		six.AddressType = discoveryv1.AddressTypeIPv6
		m := &machine{addresses: map[string]string{}, open: map[string]bool{}, without: without}
		s := New(Options{
			Services: store, Node: "here", Clock: clocktesting.NewFakeClock(time.Now()), Listen: m.listen, Proxied: func() bool { return true },
			Warn: func(_ *corev1.Service, reason, message string) { t.Errorf("event %s: %s", reason, message) },
		})
		if err := errors.Join(store.Services().Replace([]any{dual}, "1"), store.EndpointSlices().Replace([]any{four, six}, "1")); err != nil {
			t.Fatal(err)
		}
		s.sync(t.Context())
		var got []string
		for _, port := range m.ports() {
			_, weight, _ := m.get(t, port)
			got = append(got, port+" "+weight)
		}
		if !slices.Equal(got, want) || len(s.failed) > 0 {
			t.Errorf("without %q: served are %v, want %v, and %d are to be tried again", without, got, want, len(s.failed))
		}
		for _, server := range s.running {
			server.stop()
		}
	}
}

func TestAPortAnswersWhileItsServiceHasOne(t *testing.T) {
	store := services.New()
	m := &machine{addresses: map[string]string{}, open: map[string]bool{}}
	var proxied atomic.Bool
	proxied.Store(true)
	warnings := make(chan string, 10)
	turned := clocktesting.NewFakeClock(time.Now())
	s := New(Options{
		Services: store, Node: "here", Proxied: proxied.Load, Clock: turned, Listen: m.listen,
		Warn: func(service *corev1.Service, reason, message string) {
			warnings <- service.Name + " " + reason + ": " + message
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(store.Services().Replace([]any{serviceWith(31000, nil)}, "1"))
	must(store.EndpointSlices().Replace(nil, "1"))
	eventually(t, "the port is open", func() bool { return slices.Equal(m.ports(), []string{"tcp4:31000"}) })
	if status, weight, body := m.get(t, "tcp4:31000"); status != 503 || weight != "0" || body.Service.Namespace != "shop" || body.Service.Name != "web" || !body.ServiceProxyHealthy {
		t.Errorf("without endpoints: %d, weight %s, %+v", status, weight, body)
	}

	must(store.EndpointSlices().Add(sliceOf("a", endpoint("here", "10.0.0.1", true), endpoint("here", "10.0.0.2", true))))
	eventually(t, "the endpoints are counted", func() bool {
		status, weight, body := m.get(t, "tcp4:31000")
		return status == 200 && weight == "2" && body.LocalEndpoints == 2
	})
	proxied.Store(false)
	if status, weight, body := m.get(t, "tcp4:31000"); status != 503 || weight != "2" || body.ServiceProxyHealthy {
		t.Errorf("without rules: %d, weight %s, %+v", status, weight, body)
	}
	proxied.Store(true)

	// The service is replaced by another one with its port.
	must(store.Services().Replace([]any{serviceWith(31000, func(s *corev1.Service) { s.Name = "other" }), serviceWith(31001, nil)}, "2"))
	eventually(t, "both ports are open", func() bool {
		return slices.Equal(m.ports(), []string{"tcp4:31000", "tcp4:31001"})
	})
	eventually(t, "the port is that of the other service", func() bool {
		_, _, body := m.get(t, "tcp4:31000")
		return body.Service.Name == "other"
	})

	m.mu.Lock()
	m.busy = true
	m.mu.Unlock()
	must(store.Services().Replace([]any{serviceWith(31002, nil)}, "3"))
	if got, want := <-warnings, `web FailedToStartServiceHealthcheck: node here failed to start healthcheck "shop/web" on port 31002: address already in use`; got != want {
		t.Errorf("got event %q, want %q", got, want)
	}
	// A change of another service, or of its own endpoints, does not try it again.
	eventually(t, "a retry is planned", turned.HasWaiters)
	turned.Step(retryDelay - time.Second)
	must(store.EndpointSlices().Add(sliceOf("b", endpoint("here", "10.0.0.3", true))))
	must(store.Services().Add(serviceWith(31003, func(s *corev1.Service) { s.Name = "next" })))
	if got, want := <-warnings, `next FailedToStartServiceHealthcheck: node here failed to start healthcheck "shop/next" on port 31003: address already in use`; got != want {
		t.Errorf("got event %q, want %q", got, want)
	}
	must(store.Services().Delete(serviceWith(31003, func(s *corev1.Service) { s.Name = "next" })))
	m.mu.Lock()
	m.busy = false
	m.mu.Unlock()
	eventually(t, "the port is tried again", func() bool { turned.Step(time.Second); return slices.Equal(m.ports(), []string{"tcp4:31002"}) })
	cancel()
	<-done
	if len(warnings) > 0 {
		t.Errorf("another event: %s", <-warnings)
	}
	if left := m.ports(); len(left) != 0 {
		t.Errorf("open after the end: %v", left)
	}
}
