package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/reflector"
)

const (
	// requestTimeout bounds one request to the API server.
	requestTimeout = 10 * time.Second
	// The bounds of the back-off after a failure.
	minRetry, maxRetry = 100 * time.Millisecond, 7 * time.Second
	// The bounds of the time between two requests to a runtime that is not ready after
	// the start.
	minUnready, maxUnready = 50 * time.Millisecond, time.Second
)

// keepStatus computes the status and writes changes until ctx is done.
func (n *Node) keepStatus(ctx context.Context) {
	retry, unready := minRetry, minUnready
	lastNote, wasReady := "", false
	for {
		pause := n.o.UpdateFrequency
		err := n.sync(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// A repeated error is logged once.
			if err.Error() != lastNote {
				klog.FromContext(ctx).Error(err, "Failed to update node status, will retry", "node", klog.KRef("", n.o.Name))
			}
			lastNote = err.Error()
			pause, retry = retry, min(2*retry, maxRetry)
		default:
			lastNote, retry = "", minRetry
			if wasReady = wasReady || n.ready(); !wasReady {
				pause = min(unready, n.o.UpdateFrequency)
				unready = min(2*unready, maxUnready)
			}
		}
		timer := n.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-n.change:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// ready reports whether the node was ready in the last computed status.
func (n *Node) ready() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	c := condition(n.local.Status.Conditions, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// sync computes the status once and updates the API server.
func (n *Node) sync(ctx context.Context) error {
	known := n.current()
	if n.o.Register && !n.registered {
		known = nil // the watch may have shown an existing Node, which is adopted first
	}
	base := known
	if base == nil {
		// Events about its conditions have been recorded already.
		base = &corev1.Node{ObjectMeta: n.first.ObjectMeta, Spec: n.first.Spec}
		base.Status.Conditions = n.local.Status.Conditions
	}
	node := n.describe(ctx, base)
	n.set(func() { n.local = node })
	if n.o.Core == nil {
		n.updatePodCIDRs(ctx, nil)
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if known == nil {
		if err := n.register(limited, node); err != nil {
			return err
		}
		if known = n.current(); known == nil {
			return fmt.Errorf("node %s was deleted while it was registered", n.o.Name)
		}
		// An existing Node keeps what other writers have set.
		node = n.describe(ctx, known)
	}
	n.updatePodCIDRs(ctx, known)
	if labels := labelsToSet(known, n.first, requiredLabels); len(labels) > 0 {
		if err := n.patchMetadata(limited, known, labels, nil); err != nil {
			return n.failed(known, err)
		}
	}
	changed := statusChanged(&known.Status, &node.Status) && !n.hasStored(&known.Status, &node.Status)
	if !changed {
		n.set(func() { n.writing = nil }) // the response to a write that has succeeded may have been lost
	}
	if !changed && n.o.Clock.Since(n.reported) < n.o.ReportFrequency+n.delay {
		return n.devicesReset()
	}
	if err := n.patchStatus(limited, known, node); err != nil {
		return n.failed(known, err)
	}
	// The jitter spreads the reports of nodes that started at the same time.
	if n.delay = 0; changed || n.reported.IsZero() {
		n.delay = n.spread()
	}
	n.reported = n.o.Clock.Now()
	return n.devicesReset()
}

// devicesReset records that the Node has no extended resources of unknown device plugins any more.
func (n *Node) devicesReset() error {
	if !n.resets() {
		return nil
	}
	if err := n.o.Reset(); err != nil {
		return fmt.Errorf("cannot record that the extended resources of node %s have been reset: %w", n.o.Name, err)
	}
	return nil
}

// hasStored reports whether shown is what the API server returned for status.
func (n *Node) hasStored(shown, status *corev1.NodeStatus) bool {
	return n.written != nil && !statusChanged(n.written, status) && !statusChanged(n.stored, shown)
}

// spread returns a duration between minus and plus half of the report frequency.
func (n *Node) spread() time.Duration {
	return time.Duration(float64(n.o.ReportFrequency) * (n.o.Random() - 0.5))
}

// failed makes the node register again if it does not exist any more.
func (n *Node) failed(known *corev1.Node, err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		n.lost(known.UID)
	}
	return err
}

// patchStatus writes the status. The UID in the patch is its precondition. An older API
// server drops the fields that it does not know, and need not warn of them.
func (n *Node) patchStatus(ctx context.Context, known, node *corev1.Node) error {
	patch, err := statusPatch(known, node)
	if err != nil {
		return err
	}
	n.set(func() { n.writing = node.Status.Allocatable })
	patched := &corev1.Node{}
	err = n.o.Core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(n.o.Name).SubResource("status").
		Param("fieldValidation", metav1.FieldValidationIgnore).Body(patch).Do(ctx).Into(patched)
	if err != nil {
		return fmt.Errorf("cannot write the status of node %s: %w", n.o.Name, err)
	}
	n.written, n.stored = &node.Status, &patched.Status
	n.seen(patched)
	n.set(func() { n.writing = nil })
	return nil
}

// statusPatch returns the strategic merge patch from one status to the other.
func statusPatch(from, to *corev1.Node) ([]byte, error) {
	before, after := corev1.Node{Status: from.Status}, corev1.Node{Status: to.Status}
	after.UID = from.UID
	// The merge key of addresses is their type, which is not unique, so the list is
	// replaced.
	before.Status.Addresses, after.Status.Addresses = nil, nil
	x, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	y, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(x, y, corev1.Node{})
	if err != nil || apiequality.Semantic.DeepEqual(from.Status.Addresses, to.Status.Addresses) {
		return patch, err
	}
	var whole map[string]any
	if err := json.Unmarshal(patch, &whole); err != nil {
		return nil, err
	}
	status, _ := whole["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	addresses := []any{}
	for _, a := range to.Status.Addresses {
		addresses = append(addresses, a)
	}
	status["addresses"] = append(addresses, map[string]string{"$patch": "replace"})
	whole["status"] = status
	return json.Marshal(whole)
}

// watch watches the Node for changes by other writers: taints, labels, address
// ranges.
func (n *Node) watch(ctx context.Context) {
	self := fields.OneTermEqualSelector("metadata.name", n.o.Name)
	reflector.Run(ctx, n.o.Core, "nodes", self, &corev1.Node{}, "this node", nodeStore{n})
}

// nodeStore is the reflector's store of the Node.
type nodeStore struct{ n *Node }

// Add implements cache.ReflectorStore.
func (s nodeStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s nodeStore) Update(obj any) error {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("the API server sent a %T among nodes", obj)
	}
	before := s.n.current()
	s.n.seen(node)
	if before == nil || before.Spec.Unschedulable != node.Spec.Unschedulable {
		s.n.Changed()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s nodeStore) Delete(obj any) error {
	if node, ok := obj.(*corev1.Node); ok {
		s.n.gone(node.UID)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s nodeStore) Replace(objs []any, version string) error {
	if len(objs) > 0 {
		return s.Update(objs[0])
	}
	// The list may be older than a Node that was just created.
	if known := s.n.current(); known != nil {
		order, err := resourceversion.CompareResourceVersion(version, known.ResourceVersion)
		if err == nil && order >= 0 {
			s.n.gone(known.UID)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore. It is never called.
func (s nodeStore) Resync() error { return nil }
