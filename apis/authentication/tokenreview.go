package authentication

import (
	"context"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

// tokenReviews authenticate a token. The token must be valid for one of the
// audiences that the review names, by default for one of the API server's; if the
// server has none, audiences are not checked.
var tokenReviews = resource.Virtual[*authenticationv1.TokenReview]{
	Name:     "tokenreviews",
	Versions: []resource.Version{resource.Alike[authenticationv1.TokenReview, authenticationv1beta1.TokenReview]()},
	Run: func(ctx context.Context, env *resource.Env, review *authenticationv1.TokenReview, _ bool) (runtime.Object, error) {
		if review.Spec.Token == "" {
			return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		wanted := authenticator.Audiences(review.Spec.Audiences)
		if len(wanted) == 0 {
			wanted = env.Audiences
		}
		answer, ok, err := env.Authenticator.AuthenticateRequest(bearer(ctx, review.Spec.Token, wanted))
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
		if err != nil {
			review.Status.Error = err.Error()
		}
		if answer == nil || answer.User == nil {
			return review, nil
		}
		if len(wanted) > 0 && len(wanted.Intersect(answer.Audiences)) == 0 {
			return nil, apierrors.NewInternalError(errors.New("error validating audiences"))
		}
		review.Status.User = userInfo(answer.User)
		review.Status.Audiences = answer.Audiences
		return review, nil
	},
}

// bearer returns a request that carries the token and nothing else. It must not
// inherit the identity of the user who posts the review.
func bearer(ctx context.Context, token string, audiences authenticator.Audiences) *http.Request {
	ctx = request.WithUser(ctx, nil)
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	return r.WithContext(ctx)
}
