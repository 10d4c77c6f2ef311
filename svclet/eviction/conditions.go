package eviction

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Conditions are the pressure conditions of the node, which the manager sets and other
// parts of the agent read. The zero value has none.
type Conditions struct {
	mu  sync.Mutex
	all []corev1.NodeConditionType
}

// Get returns the conditions that are true, sorted.
func (c *Conditions) Get() []corev1.NodeConditionType {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// Has reports whether a condition is true.
func (c *Conditions) Has(kind corev1.NodeConditionType) bool { return slices.Contains(c.Get(), kind) }

// set replaces the conditions, and reports whether they have changed.
func (c *Conditions) set(all []corev1.NodeConditionType) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := !slices.Equal(c.all, all)
	c.all = all
	return changed
}
