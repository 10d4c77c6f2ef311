package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// The authorization modes.
const (
	AlwaysAllow = "AlwaysAllow"
	Webhook     = "Webhook"
)

// Authorization configures the authorizer.
type Authorization struct {
	// Mode is AlwaysAllow or Webhook, which creates SubjectAccessReviews at the API
	// server.
	Mode string
	// NodeName is the name of the Node object whose subresources are authorized.
	NodeName string
	// AuthorizedTTL and UnauthorizedTTL are how long results of either kind are
	// cached.
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// Authorizer authorizes requests.
type Authorizer struct {
	o         Authorization
	api       reviewer
	decisions *cache.LRUExpireCache
}

// NewAuthorizer returns an authorizer. api is needed only in mode Webhook.
func NewAuthorizer(o Authorization, api Reviews, c clock.PassiveClock) (*Authorizer, error) {
	switch {
	case o.Mode != AlwaysAllow && o.Mode != Webhook:
		return nil, fmt.Errorf("authorization mode %q is neither %s nor %s", o.Mode, AlwaysAllow, Webhook)
	case o.Mode == Webhook && api == nil:
		return nil, errors.New("authorization mode Webhook needs a connection to an API server")
	}
	return &Authorizer{o: o, api: newReviewer(api), decisions: cache.NewLRUExpireCacheWithClock(rememberedDecisions, c)}, nil
}

// Refusal is why a request is not allowed.
type Refusal struct {
	// Failed reports that the review failed, as opposed to a denial.
	Failed  bool
	Message string
	// Cause is the error of the review.
	Cause error
}

// Authorize returns nil if the user may send a request with this method and path:
// if the user is allowed one of the node subresources of the path.
func (a *Authorizer) Authorize(ctx context.Context, u *User, method, path string) *Refusal {
	if a.o.Mode == AlwaysAllow {
		return nil
	}
	verb, subresources := verbOf(method, path), subresourcesOf(path)
	for _, subresource := range subresources {
		allowed, err := a.review(ctx, a.question(u, verb, subresource))
		if err != nil {
			return &Refusal{Failed: true, Cause: err, Message: fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", u.Name, verb, subresource)}
		}
		if allowed {
			return nil
		}
	}
	return &Refusal{Message: fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", u.Name, verb, subresources)}
}

func (a *Authorizer) question(u *User, verb, subresource string) authorizationv1.SubjectAccessReviewSpec {
	q := authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: a.o.NodeName,
		},
	}
	if len(u.Extra) > 0 {
		q.Extra = make(map[string]authorizationv1.ExtraValue, len(u.Extra))
		for k, v := range u.Extra {
			q.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	return q
}

// review creates a SubjectAccessReview, or returns the cached result of an equal one.
func (a *Authorizer) review(ctx context.Context, q authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	key, err := json.Marshal(q)
	if err != nil {
		return false, fmt.Errorf("encode a subject access review: %w", err)
	}
	if answer, ok := a.decisions.Get(string(key)); ok {
		return answer == true, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: q}
	if err := a.api.review(ctx, review); err != nil {
		return false, fmt.Errorf("review the access of %q: %w", q.User, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	ttl := a.o.UnauthorizedTTL
	if allowed {
		ttl = a.o.AuthorizedTTL
	}
	a.decisions.Add(string(key), allowed, ttl)
	return allowed, nil
}
