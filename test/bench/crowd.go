package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/test/simulate"
)

const (
	// crowdNamespaces is the number of namespaces that share the pods.
	crowdNamespaces = 20
	// crowdClients is the number of connections that the users' requests share.
	crowdClients = 8
	// perCrowdPod is how long the creation of a pod, and the writes of its status, may take.
	perCrowdPod = 10 * time.Millisecond
	// responsive is the goal for the 99th percentile of requests and events, in
	// milliseconds.
	responsive = 1_000
)

// measureCrowd measures how fast the API answers users while many simulated nodes
// send the requests of kubelets, and pods are created and deleted.
func measureCrowd(ctx context.Context, t *trial) error {
	return t.assignedCrowd(ctx, crowdRows, t.sizes.CrowdNodes, t.sizes.CrowdPods)
}

// measureManyNodesAndPods measures the same, with more nodes and many more pods.
func measureManyNodesAndPods(ctx context.Context, t *trial) error {
	return t.assignedCrowd(ctx, manyRows, t.sizes.ManyNodes, t.sizes.ManyPods)
}

// measureScheduledCrowd measures the same with all controllers, so the scheduler
// assigns the pods to nodes.
func measureScheduledCrowd(ctx context.Context, t *trial) error {
	return t.crowd(ctx, &aCrowd{trial: t, rows: clusterRows, nodes: t.sizes.CrowdNodes, size: t.sizes.CrowdPods, node: func(int) string { return "" }})
}

// The prefixes of the row names of the three measures.
const (
	crowdRows   = "many nodes"
	manyRows    = "many nodes and pods"
	clusterRows = "cluster"
)

// aCrowd is the nodes, pods and users that keep a server busy.
type aCrowd struct {
	*trial
	rows        string             // the prefix of their names
	nodes, size int                // of nodes, and of pods
	node        func(i int) string // name of the i-th pod's node, or ""

	clients  []*client // of the users
	pods     kind
	machines []*simulate.Alone

	mu       sync.Mutex
	renewals []time.Duration
}

// assignedCrowd measures a crowd whose pods are created with the names of their nodes.
func (t *trial) assignedCrowd(ctx context.Context, rows string, nodes, pods int) error {
	return t.crowd(ctx, &aCrowd{trial: t, rows: rows, nodes: nodes, size: pods, node: func(i int) string { return machineName(i % nodes) }})
}

func (t *trial) crowd(ctx context.Context, c *aCrowd) error {
	c.pods = podKind()
	admins, err := t.clients(ctx, 64)
	if err != nil {
		return err
	}
	defer closeAll(admins)
	if c.clients, err = t.clients(ctx, crowdClients); err != nil {
		return err
	}
	defer closeAll(c.clients)
	if err := c.prepare(ctx, admins[0]); err != nil {
		return err
	}
	began := time.Now()
	err = c.startMachines(ctx)
	if err == nil {
		t.record(lower(c.rows, "nodes there", "s"), time.Since(began).Seconds())
		err = c.fill(ctx, admins)
	}
	if err == nil {
		err = c.live(ctx)
	}
	return errors.Join(err, c.stopMachines())
}

// prepare creates the namespaces, and binds the role system:node to all nodes:
// kube-apiserver runs without the Node authorizer.
func (c *aCrowd) prepare(ctx context.Context, admin *client) error {
	for i := range crowdNamespaces {
		if err := c.namespace(ctx, admin, crowdNamespace(i)); err != nil {
			return err
		}
	}
	return admin.do(ctx, request{method: http.MethodPost, path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body: []byte(`{
		"metadata": {"name": "bench-nodes"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"}
	}`)})
}

func crowdNamespace(i int) string { return fmt.Sprintf("bench-crowd-%02d", i%crowdNamespaces) }

// startMachines starts all machines, 16 at a time.
func (c *aCrowd) startMachines(ctx context.Context) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	c.machines = make([]*simulate.Alone, c.nodes)
	_, err = c.load(ctx, make([]*client, 16), len(c.machines), func(ctx context.Context, _ *client, i int) error {
		var err error
		c.machines[i], err = simulate.StartAlone(ctx, config, machineName(i), withImages, c.renewed)
		return err
	})
	return err
}

// withImages adds as many images to a node as kubelets report.
func withImages(node *corev1.Node) {
	for i := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/team/app-%02d:v1.2.3", i)}, SizeBytes: 50 << 20,
		})
	}
}

func (c *aCrowd) renewed(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewals = append(c.renewals, took)
}

// takeRenewals returns the sorted latencies of the lease renewals since the last
// call.
func (c *aCrowd) takeRenewals() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	renewals := c.renewals
	c.renewals = nil
	slices.Sort(renewals)
	return renewals
}

func (c *aCrowd) stopMachines() error {
	var group sync.WaitGroup
	errs := make([]error, len(c.machines))
	for i, m := range c.machines {
		if m != nil {
			group.Go(func() { errs[i] = m.Stop() })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// fill creates the pods and waits until all run.
func (c *aCrowd) fill(ctx context.Context, admins []*client) error {
	ctx, cancel := context.WithTimeout(ctx, workTimeout+time.Duration(c.size)*perCrowdPod)
	defer cancel()
	began := time.Now()
	if _, err := c.load(ctx, admins, c.size, func(ctx context.Context, admin *client, i int) error {
		return admin.do(ctx, c.create(i))
	}); err != nil {
		return err
	}
	for {
		// On clusters of this size each poll is expensive.
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		done, err := none(ctx, admins[0], "/api/v1/pods?fieldSelector=status.phase%21%3DRunning")
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	c.record(lower(c.rows, "pods run", "s"), time.Since(began).Seconds())
	if err := wait(ctx, c.sizes.MemorySettle); err != nil {
		return err
	}
	return c.recordMemory(c.rows)
}

// live sends the users' requests while nodes and pods change.
func (c *aCrowd) live(ctx context.Context) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	watchers, err := dial(ctx, config, 1)
	if err != nil {
		return err
	}
	defer closeAll(watchers)
	seen, err := watchRevisions(ctx, watchers[0], "/api/v1/pods")
	if err != nil {
		return err
	}
	defer seen.stop()
	c.takeRenewals()
	var times pacedTimes
	work, err := c.work(func() error {
		times, err = pace(ctx, c.sizes.Crowd, c.requests(seen))
		return err
	})
	if err != nil {
		return err
	}
	renewals := c.takeRenewals()
	delivered, err := seen.wait(deliveryTimeout)
	if err != nil {
		return err
	}
	for _, r := range c.requests(seen) {
		c.recordTimes(c.rows+": "+r.name, times[r.name])
	}
	c.recordTimes(c.rows+": all requests", times.all())
	c.recordTimes(c.rows+": event of a change", delivered)
	c.recordTimes(c.rows+": renew a lease", renewals)
	c.record(lower(c.rows, "server processor", "s/min"), work.cpu.Seconds()/work.elapsed.Minutes())
	return nil
}

// requests returns the users' requests. The first half of the pods stays, the
// others are replaced one by one.
func (c *aCrowd) requests(seen *revisions) []paced {
	const configMap = "/api/v1/namespaces/bench-crowd-00/configmaps"
	k, pods := configMapKind(), c.size
	user := func(i int) *client { return c.clients[i%len(c.clients)] }
	stays := func() (namespace, name string) {
		i := rand.IntN(pods / 2)
		return crowdNamespace(i), crowdPod(i)
	}
	return []paced{
		{"get", 20, func(ctx context.Context, i int) error { return user(i).do(ctx, c.pods.get(stays())) }},
		{"list a namespace", 1, func(ctx context.Context, i int) error {
			return user(i).do(ctx, request{method: http.MethodGet, path: c.pods.collection(crowdNamespace(i)) + fmt.Sprintf("?limit=%d", chunk)})
		}},
		{"create", 10, func(ctx context.Context, i int) error { return user(i).do(ctx, c.create(pods+i)) }},
		{"delete", 10, func(ctx context.Context, i int) error {
			return user(i).do(ctx, request{method: http.MethodDelete, path: c.pods.object(crowdNamespace(pods/2+i), crowdPod(pods/2+i))})
		}},
		{"patch", 10, func(ctx context.Context, i int) error {
			namespace, name := stays()
			return user(i).do(ctx, c.pods.patch(namespace, name, seen.sent()))
		}},
		{"update", 10, func(ctx context.Context, i int) error {
			name := fmt.Sprintf("settings-%d", i%100)
			if i < 100 {
				return user(i).do(ctx, request{method: http.MethodPost, path: configMap, body: k.body("bench-crowd-00", name, int64(i))})
			}
			return user(i).do(ctx, k.update("bench-crowd-00", name, int64(i)))
		}},
	}
}

func machineName(i int) string { return fmt.Sprintf("crowd-%04d", i) }

func crowdPod(i int) string { return fmt.Sprintf("pod-%06d", i) }

// create returns the request that creates the i-th pod.
func (c *aCrowd) create(i int) request {
	r := c.pods.create(crowdNamespace(i), crowdPod(i), 0)
	if node := c.node(i); node != "" {
		r.body = bytes.Replace(r.body, []byte(`"spec":{`), fmt.Appendf(nil, `"spec":{"nodeName":%q,`, node), 1)
	}
	return r
}
