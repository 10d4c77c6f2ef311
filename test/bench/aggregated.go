package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apiserver/registration"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/test/launch"
)

const (
	fleetDomain = "svc.dev"
	// fleetNamespace is that of the Service by which the host reaches the fleet.
	fleetNamespace = "svc-system"
	// hostedListed is how many objects the measured lists have.
	hostedListed = 500
)

// hostedSystem runs svc as a fleet behind a kube-apiserver, whose etcd it uses, too.
// Memory and processor time are those of svc.
type hostedSystem struct {
	*kubeSystem
	svc, svcPort string
}

// hostedFleets returns the fleet behind kube-apiserver. Without the binary there is
// nothing to measure.
func hostedFleets(o options) ([]system, error) {
	if o.kubeAPIServer == "" || o.svc == "" {
		return nil, nil
	}
	if err := o.need("svc", "kube-apiserver", "etcd"); err != nil {
		return nil, err
	}
	host, err := newKube(o.kubeAPIServer, o.etcd)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	return []system{&hostedSystem{host, o.svc, port}}, err
}

func (s *hostedSystem) Name() string       { return "svc" }
func (s *hostedSystem) Binaries() []string { return []string{s.svc} }

// fleetURL is where svc listens.
func (s *hostedSystem) fleetURL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", s.svcPort)
}

func (s *hostedSystem) Processes(dir string) ([]process, error) {
	processes, err := s.kubeSystem.Processes(dir)
	if err != nil {
		return nil, err
	}
	front := filepath.Join(dir, "front")
	if err := s.writeIdentities(front); err != nil {
		return nil, err
	}
	for i := range processes {
		processes[i].aside = true
	}
	host := &processes[len(processes)-1]
	host.args = append(host.args, "--requestheader-client-ca-file="+filepath.Join(front, "ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+filepath.Join(front, "proxy.crt"), "--proxy-client-key-file="+filepath.Join(front, "proxy.key"))
	return append(processes, process{
		name: "svc", path: s.svc, prepare: ready(s.URL()), listens: net.JoinHostPort("127.0.0.1", s.svcPort),
		args: []string{
			"apiserver", "--group-domain=" + fleetDomain, "--host-kubeconfig=" + filepath.Join(dir, "host"),
			"--etcd-servers=http://" + net.JoinHostPort("127.0.0.1", s.etcdPort), "--etcd-prefix=/fleet", "--secure-port=" + s.svcPort,
			"--tls-cert-file=" + filepath.Join(front, "serving.crt"), "--tls-private-key-file=" + filepath.Join(front, "serving.key"),
		},
	}), nil
}

// writeIdentities creates the certificates with which the host speaks to the fleet and
// the fleet is served, and the fleet's connection to the host.
func (s *hostedSystem) writeIdentities(front string) error {
	if _, err := os.Stat(front); err == nil {
		return nil
	}
	if err := os.MkdirAll(front, 0o700); err != nil {
		return err
	}
	proxies, err := launch.NewAuthority(front)
	if err != nil {
		return err
	}
	pki := filepath.Join(filepath.Dir(front), "pki")
	host, err := launch.ReadAuthority(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return err
	}
	return errors.Join(proxies.Client(front, "proxy", "front-proxy"),
		host.Server(front, "serving", "svc", "svc."+fleetNamespace+".svc", "localhost", "127.0.0.1"),
		host.Connection(filepath.Join(filepath.Dir(front), "host"), s.URL(), "svc-apiserver", "system:masters"))
}

// asHost returns a client that speaks to the fleet as the host does for an
// administrator.
func (s *hostedSystem) asHost(dir string) (*client, error) {
	front := filepath.Join(dir, "front")
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(dir, "pki", "ca.crt"), CertFile: filepath.Join(front, "proxy.crt"), KeyFile: filepath.Join(front, "proxy.key"),
	}})
	if err != nil {
		return nil, err
	}
	c := newClient(s.fleetURL(), tlsConfig)
	c.header = http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}
	return c, nil
}

// measureAggregated registers the fleet at its host, and measures its requests through
// the host and directly, and the same requests for the host's own objects.
func measureAggregated(ctx context.Context, t *trial) error {
	s := t.system.(*hostedSystem)
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	took, err := s.register(ctx, clients[0], filepath.Join(t.dir, "pki", "ca.crt"))
	if err != nil {
		return err
	}
	t.record(lower("fleet registered", "time", "ms"), milliseconds(took))
	direct, err := s.asHost(t.dir)
	if err != nil {
		return err
	}
	defer closeAll([]*client{direct})

	own, hosted := configMapKind(), configMapKind()
	hosted.api, hosted.pieces[0] = "/apis/core."+fleetDomain+"/v1", strings.Replace(hosted.pieces[0], `"v1"`, `"core.`+fleetDomain+`/v1"`, 1)
	for _, way := range []struct {
		name string
		kind kind
		*client
	}{
		{"fleet through its host", hosted, clients[0]},
		{"fleet directly", hosted, direct},
		{"the host's own", own, clients[0]},
	} {
		if err := t.measureWay(ctx, way.name, way.kind, clients[0], way.client); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return errors.Join(t.recordMemory("fleet"), t.recordMemoryOf("host", t.instance.group("kube-apiserver")))
}

// register registers the fleet's group versions, and returns the time until the host
// serves all of them.
func (s *hostedSystem) register(ctx context.Context, host *client, authorityFile string) (time.Duration, error) {
	authority, err := os.ReadFile(authorityFile)
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(s.svcPort)
	if err != nil {
		return 0, err
	}
	groups, err := registration.New(release.Default, fleetDomain)
	if err != nil {
		return 0, err
	}
	services := groups.APIServices(types.NamespacedName{Namespace: fleetNamespace, Name: "svc"})
	for _, object := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + fleetNamespace + `"}}`},
		{"/api/v1/namespaces/" + fleetNamespace + "/services", `{"metadata":{"name":"svc"},"spec":{"type":"ExternalName","externalName":"localhost"}}`},
	} {
		if err := host.do(ctx, request{method: http.MethodPost, path: object.path, body: []byte(object.body)}); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	for _, service := range services {
		service.Spec.CABundle, service.Spec.Service.Port = authority, ptr.To(int32(port)) //nolint:gosec // a port
		body, err := json.Marshal(service)
		if err != nil {
			return 0, err
		}
		if err := host.do(ctx, request{method: http.MethodPost, path: apiServicesPath, body: body}); err != nil {
			return 0, err
		}
	}
	for _, service := range services {
		if err := awaitServed(ctx, host, service); err != nil {
			return 0, fmt.Errorf("APIService %s: %w", service.Name, err)
		}
	}
	return time.Since(began), nil
}

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// awaitServed waits until the host has reached a group version, and sends requests to
// it: both come after the condition Available.
func awaitServed(ctx context.Context, host *client, service *apiregistrationv1.APIService) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resources := request{method: http.MethodGet, path: "/apis/" + service.Spec.Group + "/" + service.Spec.Version}
	for {
		err := host.do(ctx, resources)
		if status := (*statusError)(nil); !errors.As(err, &status) {
			return err
		}
		if ended := wait(ctx, pollInterval); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// measureWay measures all verbs, a list and the events of a watch by one client, in a
// namespace of their own, which the host has.
func (t *trial) measureWay(ctx context.Context, way string, k kind, host, c *client) error {
	namespace := strings.NewReplacer(" ", "-", "'", "").Replace(way)
	if err := t.namespace(ctx, host, namespace); err != nil {
		return err
	}
	n := t.sizes.Operations[1]
	for _, v := range verbs(k, namespace) {
		operations := func(group string) func(ctx context.Context, c *client, i int) error {
			return func(ctx context.Context, c *client, i int) error {
				return c.do(ctx, v.request(fmt.Sprintf("%s-%06d", group, i), time.Now().UnixNano()))
			}
		}
		if _, err := t.load(ctx, []*client{c}, 20, operations("warm-up")); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		o, err := t.load(ctx, []*client{c}, n, operations("object"))
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		t.recordLatencies(way+": "+v.name, o)
	}
	list := request{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", k.collection(namespace), hostedListed)}
	o, err := t.load(ctx, []*client{c}, 10*t.sizes.Lists, func(ctx context.Context, c *client, _ int) error { return c.do(ctx, list) })
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	t.recordLatencies(fmt.Sprintf("%s: list of %d", way, min(n, hostedListed)), o)
	return t.measureWayEvents(ctx, way, k, namespace, c)
}

func (t *trial) recordLatencies(name string, o outcome) {
	t.record(lower(name, "p50", "ms"), percentile(o.latencies, 50))
	t.record(lower(name, "p99", "ms"), percentile(o.latencies, 99))
}

// measureWayEvents measures the time from just before a change until a watch has shown
// it.
func (t *trial) measureWayEvents(ctx context.Context, way string, k kind, namespace string, c *client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const name = "object-000000"
	events, err := c.open(ctx, request{
		method: http.MethodGet,
		path:   k.collection(namespace) + "?watch=1&resourceVersion=0&fieldSelector=" + url.QueryEscape("metadata.name="+name),
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Close()
	lines := bufio.NewReader(events)
	if _, err := lines.ReadBytes('\n'); err != nil { // the object as it is
		return err
	}
	o, err := t.load(ctx, []*client{c}, t.sizes.Events, func(ctx context.Context, c *client, _ int) error {
		r := k.patch(namespace, name, time.Now().UnixNano())
		if err := c.do(ctx, r); err != nil {
			return err
		}
		_, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the watch has ended")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	t.recordLatencies(way+": event of a patch", o)
	return nil
}
