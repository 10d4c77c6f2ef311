package legacytokencleaner

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The labels of the secret of a token, both with a date (UTC): the API server writes the
// first and rejects a token with the second.
const (
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
	dateFormat        = "2006-01-02"
)

func atLeastADay(period time.Duration) []error {
	if period < 24*time.Hour {
		return []error{fmt.Errorf("--%s: %s must be at least 24h: uses are tracked by the day", periodFlag, period)}
	}
	return nil
}

// action is what is done with the secret of a token.
type action string

const (
	keep   action = "keep"
	mark   action = "mark as invalid"
	remove action = "delete"
)

// state is what decides on a token.
type state struct {
	secret  *corev1.Secret
	account *corev1.ServiceAccount // nil if there is none
	// mounted is whether a pod uses the secret.
	mounted bool
	// tracked is when the API server began to track uses; the zero time if it does not.
	tracked time.Time
}

// decide returns what to do with a secret. Only tokens that were generated with their account
// are invalidated: one that a user made stays. An invalid token is deleted after a further
// period, in which a user can make it valid by removing the label.
func decide(s state, now time.Time, period time.Duration) action {
	threshold := now.UTC().Add(-period)
	switch {
	case s.secret.DeletionTimestamp != nil, !s.secret.CreationTimestamp.Time.Before(threshold), !generated(s.secret, s.account), s.mounted:
		return keep
	case !unusedSince(s, threshold):
		return keep
	}
	marked, err := time.Parse(dateFormat, s.secret.Labels[invalidSinceLabel])
	switch {
	case err != nil:
		return mark
	case dateBefore(marked, threshold):
		return remove
	default:
		return keep
	}
}

// generated reports whether the secret was generated with the account, which lists it then.
func generated(secret *corev1.Secret, account *corev1.ServiceAccount) bool {
	return account != nil && slices.ContainsFunc(account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == secret.Name })
}

// unusedSince reports whether the token is known not to have been used on the day of the
// threshold or later.
func unusedSince(s state, threshold time.Time) bool {
	// Uses on the day on which the tracking began may not have been tracked. A label that is
	// older than the tracking says nothing of the time between them.
	if s.tracked.IsZero() || s.tracked.AddDate(0, 0, 1).After(threshold) {
		return false
	}
	used, ok := s.secret.Labels[lastUsedLabel]
	if !ok {
		return true
	}
	day, err := time.Parse(dateFormat, used)
	return err == nil && dateBefore(day, threshold)
}

func dateBefore(day, threshold time.Time) bool {
	return day.Format(dateFormat) < threshold.Format(dateFormat)
}
