package reviews

import (
	"context"
	"errors"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

// tokenReviews answers whose token it is.
func tokenReviews(identify authenticator.Request, audiences authenticator.Audiences) resource.Virtual[*authenticationv1.TokenReview] {
	return resource.Virtual[*authenticationv1.TokenReview]{
		Name: "tokenreviews",
		Run: func(ctx context.Context, _ *resource.Env, review *authenticationv1.TokenReview, _ bool) (runtime.Object, error) {
			if review.Spec.Token == "" {
				return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
			}
			wanted := authenticator.Audiences(review.Spec.Audiences)
			if len(wanted) == 0 {
				wanted = audiences
			}
			answer, ok, err := identify.AuthenticateRequest(bearer(ctx, review.Spec.Token, wanted))
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
}

// bearer is a request that carries nothing but the token. It must not inherit
// the identity of the request that asks.
func bearer(ctx context.Context, token string, audiences authenticator.Audiences) *http.Request {
	ctx = request.WithUser(ctx, nil)
	if len(audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, audiences)
	}
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	return r.WithContext(ctx)
}

// selfSubjectReviews answers who asks.
func selfSubjectReviews() resource.Virtual[*authenticationv1.SelfSubjectReview] {
	return resource.Virtual[*authenticationv1.SelfSubjectReview]{
		Name: "selfsubjectreviews",
		Run: func(ctx context.Context, _ *resource.Env, _ *authenticationv1.SelfSubjectReview, _ bool) (runtime.Object, error) {
			who, err := asking(ctx)
			if err != nil {
				return nil, err
			}
			arrived, ok := request.ReceivedTimestampFrom(ctx)
			if !ok {
				arrived = time.Now()
			}
			return &authenticationv1.SelfSubjectReview{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(arrived)},
				Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(who)},
			}, nil
		},
	}
}

// asking is the user whose request the context belongs to.
func asking(ctx context.Context) (user.Info, error) {
	who, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return who, nil
}

func userInfo(who user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{
		Username: who.GetName(),
		UID:      who.GetUID(),
		Groups:   who.GetGroups(),
		Extra:    map[string]authenticationv1.ExtraValue{},
	}
	for key, values := range who.GetExtra() {
		info.Extra[key] = values
	}
	return info
}
