package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/traffic"
)

const (
	// roundLength is how long clients work before their record is checked.
	roundLength = 15 * time.Second
	// maxFault bounds how long a fault lasts.
	maxFault = 2500 * time.Millisecond
	// watchList lets watches start with the objects that exist.
	watchList = "--feature-gates=WatchList=true"
)

// TestRequestsAndWatchesAreLinearizable sends requests of all kinds, and watches, with
// faults meanwhile, and checks the responses against the changes in etcd. $LINEARIZE is
// how long that takes: 60s by default.
func TestRequestsAndWatchesAreLinearizable(t *testing.T) {
	duration := time.Minute
	if text := os.Getenv("LINEARIZE"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), "$LINEARIZE")
	}
	systems := []struct {
		name  string
		start func(t *testing.T) *system
	}{{"two API servers on one etcd", twoServers}, {"svc up", oneServer}}
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			system := s.start(t)
			system.define(t)
			end := time.Now().Add(duration / time.Duration(len(systems)))
			for i := 0; time.Now().Before(end); i++ {
				system.round(t, collections()[i%len(collections())], fmt.Sprint("round-", i))
			}
		})
	}
}

// system is what clients work with, and what can happen to it.
type system struct {
	// direct are the servers' configurations, clients the same by way of wires.
	direct, clients []*rest.Config
	etcd            *clientv3.Client
	faults          []fault
}

// fault makes a part of the system unavailable until wait returns.
type fault struct {
	name string
	do   func(wait func())
}

// collections are those that clients work with: of a built-in kind, and of a custom one, which
// other handlers serve.
func collections() []collection {
	return []collection{
		{traffic.ConfigMaps(), "/registry/configmaps/"},
		{traffic.Resource{
			TypeMeta: metav1.TypeMeta{APIVersion: "linearize.example.com/v1", Kind: "Record"}, Name: "records",
			MergePatches: []types.PatchType{types.MergePatchType},
		}, "/registry/linearize.example.com/records/"},
	}
}

// collection is a resource with the prefix of its objects in etcd.
type collection struct {
	traffic.Resource
	prefix string
}

// define creates the definition of the custom resource, and waits until all servers
// serve it.
func (s *system) define(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	const definition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "records.linearize.example.com"},
		"spec": {"group": "linearize.example.com", "scope": "Namespaced", "names": {"plural": "records", "singular": "record", "kind": "Record"},
			"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`
	resp, err := launch.Send(t.Context(), s.direct[0], launch.Request{
		Method: http.MethodPost, Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ContentType: "application/json", Body: definition,
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resp.Status).To(Equal(http.StatusCreated), resp.Body)
	for _, server := range s.direct {
		g.Eventually(func() int { return status(server, "/apis/linearize.example.com/v1/records") }).Should(Equal(http.StatusOK))
	}
}

// round lets clients work in a new namespace, and checks what they have received.
func (s *system) round(t *testing.T, of collection, namespace string) {
	t.Helper()
	g := NewWithT(t)
	client := clientOf(t, s.direct[0])
	g.Eventually(func() error { // the fault of the round before may have been the last to end
		_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}).Should(Succeed())
	version := s.emptyAt(t, of.Path(namespace))

	seed := rand.Uint64()
	t.Logf("%s of %s: seed %d", namespace, of.Name, seed)
	recording := history.Record(t.Context(), s.etcd, of.prefix+namespace+"/", version)
	clients := &traffic.Traffic{Servers: s.clients, Resource: of.Resource, Namespace: namespace, Version: version, Seed: seed}
	ctx, cancel := context.WithTimeout(t.Context(), roundLength)
	defer cancel()
	working := make(chan error, 1)
	go func() { working <- clients.Run(ctx) }()
	s.fail(ctx, t, rand.New(rand.NewPCG(seed, 0)), s.compaction(ctx, t, recording))
	g.Expect(<-working).To(Succeed())
	ctx, cancel = context.WithTimeout(t.Context(), launch.Patience)
	defer cancel()
	result, err := clients.Finish(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	broken := result.Check(ctx, recording)
	t.Logf("%s: %s", namespace, result)
	if broken != nil {
		t.Fatalf("%.20000s", broken)
	}
}

// emptyAt returns a version at which a collection is empty.
func (s *system) emptyAt(t *testing.T, path string) uint64 {
	t.Helper()
	g := NewWithT(t)
	var resp launch.Response
	// After a fault of the round before, the server's cache may still be filling.
	g.Eventually(func() (int, error) {
		var err error
		resp, err = launch.Send(t.Context(), s.direct[0], launch.Request{Method: http.MethodGet, Path: path})
		return resp.Status, err
	}).Should(Equal(http.StatusOK))
	var list metav1.PartialObjectMetadataList
	g.Expect(json.Unmarshal([]byte(resp.Body), &list)).To(Succeed(), resp.Body)
	g.Expect(list.Items).To(BeEmpty())
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	g.Expect(err).NotTo(HaveOccurred())
	return version
}

// compaction makes etcd forget all versions before the last one that is recorded:
// watches and lists of earlier ones expire.
func (s *system) compaction(ctx context.Context, t *testing.T, recording *history.Recording) fault {
	return fault{"compact", func(func()) {
		version := recording.Version()
		if version == 0 {
			return
		}
		_, err := s.etcd.Compact(ctx, int64(version)) //nolint:gosec // a version of etcd is an int64
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil {
			t.Errorf("compact: %v", err)
		}
	}}
}

// fail causes one fault after the other until the context ends.
func (s *system) fail(ctx context.Context, t *testing.T, random *rand.Rand, more ...fault) {
	faults := slices.Concat(s.faults, more)
	wait := func() {
		timer := time.NewTimer(time.Duration(random.Int64N(int64(maxFault))))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	var done []string
	for wait(); ctx.Err() == nil; wait() {
		fault := faults[random.IntN(len(faults))]
		fault.do(wait)
		done = append(done, fault.name)
	}
	t.Logf("faults: %s", strings.Join(done, ", "))
}

// twoServers are two API servers, each with a connection of its own to one etcd.
func twoServers(t *testing.T) *system {
	e := newEtcd(t)
	s := &system{etcd: etcdClient(t, e.URL())}
	for i := range 2 {
		toEtcd := newWire(t, "127.0.0.1:"+e.port)
		r := newReplica(t, "http://"+toEtcd.address, watchList)
		name := fmt.Sprint("server ", i)
		s.add(t, r.config)
		s.faults = append(s.faults, wireFaults(name+" and etcd", toEtcd)...)
		s.faults = append(s.faults, processFaults(t, name, func() *launch.Process { return r.Process }, func() { r.start(t) })...)
	}
	s.faults = append(s.faults, processFaults(t, "etcd", func() *launch.Process { return e.Process }, func() { e.Process = startEtcd(t, e.dir, e.port).Process })...)
	return s
}

// oneServer is svc up.
func oneServer(t *testing.T) *system {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	port, err := launch.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	server := upAt(t, dir, port, watchList)
	s := &system{etcd: etcdClient(t, "unix:"+filepath.Join(dir, "etcd", "etcd.sock"))}
	s.add(t, server.Config)
	s.faults = append(s.faults, processFaults(t, "svc up", func() *launch.Process { return server.Process }, func() { server = upAt(t, dir, port, watchList) })...)
	return s
}

// add adds a server, and a wire that its clients use.
func (s *system) add(t *testing.T, config *rest.Config) {
	w := newWire(t, "127.0.0.1:"+portOf(t, config))
	clients := rest.CopyConfig(config)
	clients.Host = "https://" + w.address
	s.faults = append(s.faults, wireFaults(fmt.Sprintf("server %d and its clients", len(s.direct)), w)...)
	s.direct, s.clients = append(s.direct, config), append(s.clients, clients)
}

func etcdClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// wireFaults are what can happen to connections.
func wireFaults(name string, w *wire) []fault {
	return []fault{
		{"cut " + name, func(func()) { w.cut() }},
		{"hold " + name, func(wait func()) {
			w.hold()
			defer w.release()
			wait()
		}},
	}
}

// processFaults are what can happen to a process.
func processFaults(t *testing.T, name string, process func() *launch.Process, start func()) []fault {
	return []fault{
		{"kill " + name, func(wait func()) {
			process().Kill()
			wait()
			start()
		}},
		{"freeze " + name, func(wait func()) {
			g := NewWithT(t)
			g.Expect(process().Signal(syscall.SIGSTOP)).To(Succeed())
			wait()
			g.Expect(process().Signal(syscall.SIGCONT)).To(Succeed())
		}},
	}
}
