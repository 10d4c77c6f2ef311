package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/nodeconfig"
	"svc.dev/svc/svclet/proxy"
	"svc.dev/svc/svclet/services"
	"svc.dev/svc/test/launch"
)

const (
	// measured services have no endpoint at first, and changes of them get one, at a rate per
	// second.
	measured, changes, rate = 1000, 200, 10
	// sinkPort is the port of a server that reads all that it is sent.
	sinkPort = 8081
	// minThroughput is the goal for a connection through a cluster IP, in proportion to a direct one.
	minThroughput = 0.97
)

// TestFiguresBesideKubeProxy prints, for each proxy in turn, how long after its first endpoint
// a service answers (within 4 ms), the processor and memory that the proxy takes meanwhile, and how fast a
// connection is through a cluster IP. The goals, of CONTRIBUTING.md: svc's proxy is not
// slower than kube-proxy, and a connection through it hardly slower than a direct one.
func TestFiguresBesideKubeProxy(t *testing.T) {
	if os.Getenv("MEASURE") == "" || os.Getenv("KUBE_PROXY") == "" {
		t.Skip("run it with make bench-services")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	median := map[string]time.Duration{}
	for _, name := range []string{"svc", "kube-proxy"} {
		t.Run(name, func(t *testing.T) {
			n, o := newNetwork(t), newMeasured()
			n.locals[0].drain(fmt.Sprintf("%s:%d", endpoints[0], sinkPort))
			server := newAPIServer(t, n.node, o)
			process := startProxy(t, n.node, name, server.url)
			n.await(t, objects{services: o.services[:1]}, process.Output)
			before, began := cpuOf(t, process.Pid()), time.Now()
			latencies := n.change(t, server, o)
			cpu := (cpuOf(t, process.Pid()) - before) / time.Since(began).Seconds()
			slices.Sort(latencies)
			median[name] = latencies[len(latencies)/2]
			throughput := n.throughput(t, o)
			if name == "svc" && throughput < minThroughput {
				t.Errorf("a connection through a cluster IP has %.3f of the throughput of a direct one, less than %.2f", throughput, minThroughput)
			}
			t.Logf("%s: first answer after %v (p50), %v (p99); %.1f %% of a processor at %d changes/s; %d MB resident; throughput %.3f of direct", name,
				median[name], latencies[len(latencies)*99/100], 100*cpu, rate, residentOf(t, process.Pid())>>20, throughput)
			if _, err := process.Stop(launch.Patience); err != nil {
				t.Log(err)
			}
		})
	}
	if median["svc"] > median["kube-proxy"] {
		t.Errorf("the first answer takes %v, with kube-proxy %v", median["svc"], median["kube-proxy"])
	}
}

// newMeasured returns services of which the first has an endpoint, and a port for drain.
func newMeasured() objects {
	o := objects{node: newNode()}
	for i := range measured {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), UID: types.UID(fmt.Sprint("web-", i))}
		ip := fmt.Sprintf("10.96.%d.%d", i/250, i%250+1)
		s := corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{
				{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(podPort)},
				{Name: "sink", Protocol: corev1.ProtocolTCP, Port: 81, TargetPort: intstr.FromInt32(sinkPort)},
			},
		}}
		o.services = append(o.services, s)
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
		slice := discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("web"), Port: ptr.To[int32](podPort), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("sink"), Port: ptr.To[int32](sinkPort), Protocol: ptr.To(corev1.ProtocolTCP)},
		}}
		if i == 0 {
			slice.Endpoints = []discoveryv1.Endpoint{newEndpoint(nil, endpoints[0], true, false)}
		}
		o.slices = append(o.slices, slice)
	}
	return o
}

// startProxy starts a proxy on the node: kube-proxy, or this program as svc's.
func startProxy(t *testing.T, node *namespace, name, url string) *launch.Process {
	t.Helper()
	words := []string{"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), node.fd)}
	if name == "svc" {
		words = append(words, os.Args[0], "-test.run=^TestProxyProcess$")
	} else {
		words = append(words, kubeProxy(t, url)...)
	}
	command := exec.Command(words[0], words[1:]...)
	command.Env = append(os.Environ(), "PROXY_OF="+url)
	process, err := launch.StartCommand(command)
	must(t, err)
	t.Cleanup(process.Kill)
	return process
}

// TestProxyProcess is not a test: it is svc's proxy as a process of its own, in the network
// namespace that it is started in, on the node of newNode.
func TestProxyProcess(t *testing.T) {
	url := os.Getenv("PROXY_OF")
	if url == "" {
		t.Skip("the other tests run it")
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: url})
	must(t, err)
	store := services.New()
	node := newNode()
	p, err := proxy.New(proxy.Options{
		Services: store, Node: nodeName, Zone: func() string { return zone }, Addresses: func() []string { return nodeconfig.HostIPs(&node) },
		Bridge: bridge, PodRanges: func() []string { return node.Spec.PodCIDRs }, Clock: clock.RealClock{},
	})
	must(t, err)
	go store.Run(t.Context(), client.CoreV1().RESTClient(), client.DiscoveryV1().RESTClient())
	p.Run(t.Context()) // until a signal
}

// change gives services an endpoint, one after the other, and returns how long each then took
// to answer.
func (n network) change(t *testing.T, server *apiServer, o objects) []time.Duration {
	t.Helper()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	latencies := make([]time.Duration, changes)
	var waiting sync.WaitGroup
	for i := range changes {
		<-tick.C
		slice := *o.slices[i+1].DeepCopy()
		slice.Endpoints = []discoveryv1.Endpoint{newEndpoint(nil, endpoints[0], true, false)}
		began := time.Now()
		server.put(t, "/apis/discovery.k8s.io/v1/endpointslices", &slice)
		waiting.Go(func() {
			// The kernel sends a thousand refusals a second; one that is missing would be waited for.
			poll := time.NewTicker(4 * time.Millisecond)
			defer poll.Stop()
			for ; time.Since(began) < time.Minute; <-poll.C {
				if strings.Contains(n.pod.ask(t.Context(), "tcp", o.services[i+1].Spec.ClusterIP+":80"), " from ") {
					latencies[i] = time.Since(began)
					return
				}
			}
			t.Errorf("%s does not answer", o.services[i+1].Name)
		})
	}
	waiting.Wait()
	return latencies
}

// drain reads all that is sent to an address, and answers with its end.
func (n *namespace) drain(address string) {
	n.t.Helper()
	var listener net.Listener
	must(n.t, n.in(func() (err error) { listener, err = net.Listen("tcp4", address); return err }))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c) // the client reports what it misses
			c.Close()
		}
	})
	n.t.Cleanup(func() { listener.Close(); serving.Wait() })
}

// throughput returns how fast a connection of a pod to another is through a service's address,
// in proportion to a direct one: the median of some that alternate.
func (n network) throughput(t *testing.T, o objects) float64 {
	t.Helper()
	send := func(address string) float64 {
		const size = 256 << 20
		var c net.Conn
		must(t, n.pod.in(func() (err error) { c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp4", address); return err }))
		defer c.Close()
		began, block := time.Now(), make([]byte, 1<<18)
		for range size / len(block) {
			if _, err := c.Write(block); err != nil {
				t.Fatal(err)
			}
		}
		// The server has read all when it answers with its end.
		must(t, c.(*net.TCPConn).CloseWrite())
		_, err := io.Copy(io.Discard, c)
		must(t, err)
		return size / time.Since(began).Seconds()
	}
	var ratios []float64
	for range 41 {
		direct := send(fmt.Sprintf("%s:%d", endpoints[0], sinkPort))
		ratios = append(ratios, send(o.services[0].Spec.ClusterIP+":81")/direct)
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// cpuOf returns the seconds of processor that a process has used.
func cpuOf(t *testing.T, pid int) float64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	total := 0
	for _, text := range fields[11:15] { // its own and its children's: nft's
		ticks, err := strconv.Atoi(text)
		must(t, err)
		total += ticks
	}
	return float64(total) / 100
}

// residentOf returns the bytes of memory that a process has.
func residentOf(t *testing.T, pid int) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(content))[1])
	must(t, err)
	return pages * os.Getpagesize()
}
