package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Kubelet's defaults: a lease is renewed after a quarter of its duration, which
// varies by 4 %, and a status that has not changed is written again after five
// minutes, give or take one half for what has started at the same time.
const (
	renewAfter  = 10 * time.Second
	renewJitter = 0.04
	reportAfter = 5 * time.Minute
)

// Alone is a machine that works by itself, as that of a kubelet does: by a
// connection of its own, as its node's user, with kubelet's heartbeats, and with
// watches of its Node, its pods and the services.
type Alone struct {
	nodes   *Nodes
	name    string
	beaten  func(time.Duration)
	mu      sync.Mutex
	failure error
}

// StartAlone creates a node, as [Nodes.Add] does, and plays its machine until Stop.
// config may impersonate any user. beaten, if not nil, is told how long each
// renewal of the lease took.
func StartAlone(ctx context.Context, config *rest.Config, name string, change func(*corev1.Node), beaten func(time.Duration)) (*Alone, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "simulated-node"
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
	// With a function of its own the configuration has a connection of its own.
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	playing, cancel := context.WithCancel(context.Background())
	n := &Nodes{client: client, cancel: cancel, nodes: map[string]bool{}, leases: map[string]*coordinationv1.Lease{}}
	a := &Alone{nodes: n, name: name, beaten: beaten}
	if err := n.Add(ctx, name, change); err != nil {
		cancel()
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	n.runPods(playing, fields.OneTermEqualSelector("spec.nodeName", name), 1)
	a.watch(playing)
	n.running.Go(func() { a.beat(playing) })
	n.running.Go(func() { a.report(playing) })
	return a, nil
}

// Stop ends the machine, as a power cut would. It returns the first failure of a
// heartbeat.
func (a *Alone) Stop() error {
	a.nodes.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failure
}

func (a *Alone) failed(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		a.failure = fmt.Errorf("node %s: %s: %w", a.name, what, err)
	}
}

// watch follows the Node and the services, as kubelet does.
func (a *Alone) watch(ctx context.Context) {
	self := informers.NewSharedInformerFactoryWithOptions(a.nodes.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.name).String()
	}))
	self.Core().V1().Nodes().Informer()
	services := informers.NewSharedInformerFactory(a.nodes.client, 0)
	services.Core().V1().Services().Informer()
	for _, factory := range []informers.SharedInformerFactory{self, services} {
		factory.Start(ctx.Done())
		a.nodes.running.Go(func() {
			<-ctx.Done()
			factory.Shutdown()
		})
	}
}

// beat renews the lease. The first time comes early for some, so that machines
// that have started together do not beat together.
func (a *Alone) beat(ctx context.Context) {
	for pause := randomly(renewAfter); ; pause = renewAfter + time.Duration(renewJitter*rand.Float64()*float64(renewAfter)) {
		if !paused(ctx, pause) {
			return
		}
		began := time.Now()
		err := a.nodes.renew(ctx, a.name)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.failed("renew the lease", err)
		case a.beaten != nil:
			a.beaten(time.Since(began))
		}
	}
}

// report writes the Node's status, of which only the times have changed.
func (a *Alone) report(ctx context.Context) {
	for pause := randomly(reportAfter); ; pause = reportAfter {
		if !paused(ctx, pause) {
			return
		}
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		_, err := a.nodes.client.CoreV1().Nodes().Patch(ctx, a.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !errors.Is(err, context.Canceled) {
			a.failed("write the status", err)
		}
	}
}

func randomly(most time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(most))) }

// paused waits, and reports whether it waited to the end: false when the context ends.
func paused(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
