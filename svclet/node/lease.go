package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// renewFraction is the fraction of the Lease's duration after which it is renewed.
	renewFraction = 0.25
	// renewJitter is the maximum jitter of the renewal period, as a fraction.
	renewJitter = 0.04
)

// keepLease renews the Lease until ctx is done.
func (n *Node) keepLease(ctx context.Context) {
	every := time.Duration(float64(n.o.LeaseDuration) * renewFraction)
	retry := minRetry
	logged := false
	var lease *coordinationv1.Lease
	for {
		pause := every + time.Duration(renewJitter*n.o.Random()*float64(every))
		renewed, err := n.renew(ctx, lease, every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !logged {
				klog.FromContext(ctx).Error(err, "Failed to update node lease, will retry", "lease", klog.KRef(corev1.NamespaceNodeLease, n.o.Name))
			}
			logged = true
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
				// Another writer has changed the Lease: read it again.
				lease = nil
			}
			pause, retry = min(retry, every), min(2*retry, maxRetry)
		default:
			lease, logged, retry = renewed, false, minRetry
		}
		timer := n.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// renew renews the Lease that was last written, or the one in the API server.
func (n *Node) renew(ctx context.Context, lease *coordinationv1.Lease, timeout time.Duration) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if lease == nil {
		lease = &coordinationv1.Lease{}
		err := n.o.Coordination.Get().Namespace(corev1.NamespaceNodeLease).Resource("leases").Name(n.o.Name).Do(ctx).Into(lease)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("cannot read lease %s: %w", n.o.Name, err)
		}
		lease.ManagedFields = nil
	}
	n.fillLease(lease)
	request := n.o.Coordination.Put().Name(n.o.Name)
	if lease.ResourceVersion == "" {
		request = n.o.Coordination.Post()
	}
	// The answer is decoded into the object that was sent, so one object serves all
	// renewals.
	if err := request.Namespace(corev1.NamespaceNodeLease).Resource("leases").Body(lease).Do(ctx).Into(lease); err != nil {
		return nil, fmt.Errorf("cannot write lease %s: %w", n.o.Name, err)
	}
	lease.ManagedFields = nil
	return lease, nil
}

// fillLease sets the Lease's content. Its owner is the Node, once that is known.
func (n *Node) fillLease(lease *coordinationv1.Lease) {
	lease.Name, lease.Namespace = n.o.Name, corev1.NamespaceNodeLease
	lease.Spec.HolderIdentity = ptr.To(n.o.Name)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(n.o.LeaseDuration / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: n.o.Clock.Now()}
	node := n.current()
	if node == nil || len(lease.OwnerReferences) == 1 && lease.OwnerReferences[0].UID == node.UID {
		return
	}
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: n.o.Core.APIVersion().String(), Kind: "Node", Name: node.Name, UID: node.UID,
	}}
}
