package authentication

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1alpha1 "k8s.io/api/authentication/v1alpha1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

// selfSubjectReviews return the user who posts the review.
var selfSubjectReviews = resource.Virtual[*authenticationv1.SelfSubjectReview]{
	Name:     "selfsubjectreviews",
	Versions: []resource.Version{resource.Alike[authenticationv1.SelfSubjectReview, authenticationv1beta1.SelfSubjectReview](), resource.Alike[authenticationv1.SelfSubjectReview, authenticationv1alpha1.SelfSubjectReview]()},
	Run: func(ctx context.Context, env *resource.Env, _ *authenticationv1.SelfSubjectReview, _ bool) (runtime.Object, error) {
		who, err := Requester(ctx)
		if err != nil {
			return nil, err
		}
		received, ok := request.ReceivedTimestampFrom(ctx)
		if !ok {
			received = env.Clock.Now()
		}
		return &authenticationv1.SelfSubjectReview{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(received)},
			Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(who)},
		}, nil
	},
}

// Requester returns the user whose request the context belongs to, or a
// BadRequest error if there is none.
func Requester(ctx context.Context) (user.Info, error) {
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
