//go:build linux

package podnetwork

import (
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/svclet/podnetwork/plan"
)

// nodes are those of the API server.
type nodes struct {
	// changed has a value when a sync is due.
	changed chan struct{}

	mu     sync.Mutex
	synced bool
	all    map[string]plan.Node
}

func newNodes() *nodes { return &nodes{changed: make(chan struct{}, 1), all: map[string]plan.Node{}} }

func (n *nodes) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// list returns all nodes, and false before all are known.
func (n *nodes) list() ([]plan.Node, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]plan.Node, 0, len(n.all))
	for _, node := range n.all {
		all = append(all, node)
	}
	return all, n.synced
}

// Add implements cache.ReflectorStore.
func (n *nodes) Add(o any) error { return n.Update(o) }

// Update implements cache.ReflectorStore. Most events of nodes are about what a pod
// network does not need.
func (n *nodes) Update(o any) error {
	object, err := nodeOf(o)
	if err != nil {
		return err
	}
	node := plan.NodeOf(object)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !reflect.DeepEqual(n.all[node.Name], node) {
		n.all[node.Name] = node
		n.signal()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (n *nodes) Delete(o any) error {
	object, err := nodeOf(o)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, object.Name)
	n.signal()
	return nil
}

// Replace implements cache.ReflectorStore.
func (n *nodes) Replace(objects []any, _ string) error {
	all := map[string]plan.Node{}
	for _, o := range objects {
		object, err := nodeOf(o)
		if err != nil {
			return err
		}
		all[object.Name] = plan.NodeOf(object)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all, n.synced = all, true
	n.signal()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*nodes) Resync() error { return nil }

func nodeOf(o any) (*corev1.Node, error) {
	object, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("unexpected object %T", o)
	}
	return object, nil
}
