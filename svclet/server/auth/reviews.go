package auth

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reviews creates TokenReviews and SubjectAccessReviews at the API server, and
// fills in their status. controller-runtime's client implements it.
type Reviews interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
}

// reviewTimeout bounds one attempt.
const reviewTimeout = 10 * time.Second

// reviewer creates reviews, with a few retries for temporary errors.
type reviewer struct {
	api     Reviews
	backoff wait.Backoff
}

func newReviewer(api Reviews) reviewer {
	return reviewer{api: api, backoff: wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}}
}

// review creates a copy of the object, with retries, and writes the result into
// the object.
func (r reviewer) review(ctx context.Context, obj client.Object) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, r.backoff, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		last = r.api.Create(ctx, obj)
		if last != nil && !isRetryable(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

func isRetryable(err error) bool {
	if _, wait := apierrors.SuggestsClientDelay(err); wait {
		return true
	}
	return utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsConnectionRefused(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}
