// Package election chooses the one manager that works, by a Lease, and notices
// when the API server has gone back in time.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrWentBack tells that the API server has an older state than it had: its
// etcd was restored from a snapshot. Caches filled before are worth nothing.
var ErrWentBack = errors.New("the API server has gone back to an earlier state, as after a restore from a snapshot")

// Lock is a resourcelock.Interface on a Lease. It takes a client that knows the
// kind by its Go type; client-go's own knows one group name only. One goroutine
// at a time may use it.
type Lock struct {
	// Client must not read from a cache.
	Client client.Client
	Key    client.ObjectKey
	// Holder is this process in the Lease. One that was holding the lock under
	// the same name before it was killed has it again at once.
	Holder string
	// Events records who became the leader.
	Events record.EventRecorder
	// WentBack is called with ErrWentBack when the Lease turns out to be older
	// than it was.
	WentBack func(error)

	lease *coordinationv1.Lease
}

var _ resourcelock.Interface = &Lock{}

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease := &coordinationv1.Lease{}
	if err := l.Client.Get(ctx, l.Key, lease); err != nil {
		return nil, nil, err
	}
	if err := l.seen(lease); err != nil {
		return nil, nil, err
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	raw, err := json.Marshal(record)
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}
	if err := l.Client.Create(ctx, lease); err != nil {
		return err
	}
	return l.seen(lease)
}

// Update implements resourcelock.Interface. It fails with a conflict when
// somebody else has written the Lease since it was read last.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return fmt.Errorf("lease %s is updated before it was read", l.Key)
	}
	lease := l.lease.DeepCopy()
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if err := l.Client.Update(ctx, lease); err != nil {
		return err
	}
	return l.seen(lease)
}

// seen remembers the newest Lease.
func (l *Lock) seen(lease *coordinationv1.Lease) error {
	if l.lease != nil {
		order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, l.lease.ResourceVersion)
		if err != nil {
			return fmt.Errorf("lease %s: %w", l.Key, err)
		}
		if order < 0 {
			l.WentBack(ErrWentBack)
			return ErrWentBack
		}
	}
	l.lease = lease
	return nil
}

// RecordEvent implements resourcelock.Interface.
func (l *Lock) RecordEvent(what string) {
	if l.lease != nil {
		l.Events.Eventf(l.lease, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.Holder, what)
	}
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.Holder }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return l.Key.String() }
