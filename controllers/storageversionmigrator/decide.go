package storageversionmigrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// The reasons of the conditions.
const (
	running   = "MigrationRunning"
	completed = "MigrationCompleted"
	succeeded = "StorageVersionMigrationSucceeded"
	failed    = "StorageVersionMigrationFailed"
)

// step is what to do next about the migrations of a resource.
type step struct {
	// finish are those that have ended and are not marked so yet.
	finish []*migration
	// run is the one that is running, and start the one that is to run next: the oldest.
	// At most one of them is set.
	run, start *migration
}

// decide returns what to do about the migrations of a resource: they run one at a time.
func decide(all []*migration) step {
	var s step
	for _, m := range all {
		switch ended, runs := hasEnded(m), is(m, storagemigrationv1.MigrationRunning); {
		case ended && runs:
			s.finish = append(s.finish, m)
		case ended:
		case runs && (s.run == nil || order(m, s.run) < 0):
			s.run = m
		case !runs && (s.start == nil || order(m, s.start) < 0):
			s.start = m
		}
	}
	slices.SortFunc(s.finish, order)
	if s.run != nil {
		s.start = nil
	}
	return s
}

// order compares two migrations by their age, and then by their names.
func order(a, b *migration) int {
	if age := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); age != 0 {
		return age
	}
	return strings.Compare(a.Name, b.Name)
}

func hasEnded(m *migration) bool {
	return is(m, storagemigrationv1.MigrationSucceeded) || is(m, storagemigrationv1.MigrationFailed)
}

func is(m *migration, condition storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(condition))
}

// set sets a condition, and reports whether it has changed.
func set(m *migration, condition storagemigrationv1.MigrationConditionType, status metav1.ConditionStatus, reason, message string, now time.Time) bool {
	c := metav1.Condition{Type: string(condition), Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}
	if status == metav1.ConditionFalse {
		c.ObservedGeneration = m.Generation
	}
	return meta.SetStatusCondition(&m.Status.Conditions, c)
}

// message returns what the condition Running says: how many of the objects are still to be
// migrated, and the error after which the migration is tried again.
func message(left, objects int, err error) string {
	text := "The migration is running"
	switch {
	case objects == 0:
	case left > 0:
		text += fmt.Sprintf(", %d/%d objects not yet migrated", left, objects)
	default:
		text += fmt.Sprintf(", %d objects verified migrated", objects)
	}
	if err != nil {
		text += fmt.Sprintf("; transient error: %v", err)
	}
	return text
}

// isTransient reports whether a migration is tried again after an error: the API server did
// not respond, or asks to try again.
func isTransient(err error) bool {
	if invalid := (resourceversion.InvalidResourceVersion{}); errors.As(err, &invalid) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // it is not an answer of the API server
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsResourceExpired(err)
}

// discoveryDelay is how long after its creation a migration waits for its resource to be
// served.
const discoveryDelay = time.Minute

// waitForResource returns how long a migration still waits for its resource to be served.
func waitForResource(m *migration, now time.Time) time.Duration {
	return m.CreationTimestamp.Add(discoveryDelay).Sub(now)
}
