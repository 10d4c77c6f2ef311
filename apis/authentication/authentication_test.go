package authentication

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/apis/resource"
)

var (
	jane = &user.DefaultInfo{Name: "jane", UID: "42", Groups: []string{"developers"}, Extra: map[string][]string{"scopes": {"a", "b"}}}
	now  = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
)

func TestASelfSubjectReviewReturnsTheRequestingUser(t *testing.T) {
	answer, err := post(t, &resource.Env{Clock: testingclock.NewFakePassiveClock(now)}, &authenticationv1.SelfSubjectReview{})
	if err != nil {
		t.Fatal(err)
	}
	review := answer.(*authenticationv1.SelfSubjectReview)
	info := review.Status.UserInfo
	if info.Username != "jane" || info.UID != "42" || !slices.Equal(info.Groups, jane.Groups) || !slices.Equal(info.Extra["scopes"], []string{"a", "b"}) {
		t.Errorf("user = %+v", info)
	}
	if !review.CreationTimestamp.Time.Equal(now) {
		t.Errorf("creationTimestamp = %s, want the clock's %s", review.CreationTimestamp, now)
	}
}

func TestATokenReviewAuthenticatesTheToken(t *testing.T) {
	for _, tc := range []struct {
		name, token      string
		audiences, asked []string
		want             authenticationv1.TokenReviewStatus
		err              string
	}{
		{name: "a good token", token: "good", want: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}},
		{name: "a good token for the server's audience", token: "good", audiences: []string{"svc"}, want: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}, Audiences: []string{"svc"}}},
		{name: "a good token for the asked audience", token: "good", audiences: []string{"svc"}, asked: []string{"vault"}, want: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}, Audiences: []string{"vault"}}},
		{name: "an authenticator that ignores audiences", token: "careless", audiences: []string{"svc"}, err: "Internal error occurred: error validating audiences"},
		{name: "a bad token", token: "bad", want: authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}},
		{name: "an unknown token", token: "unknown"},
		{name: "no token", err: "token is required for TokenReview in authentication"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, err := post(t, &resource.Env{Authenticator: authenticator.RequestFunc(identify), Audiences: tc.audiences}, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tc.token, Audiences: tc.asked}})
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("error = %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := answer.(*authenticationv1.TokenReview).Status
			if got.Authenticated != tc.want.Authenticated || got.User.Username != tc.want.User.Username || got.Error != tc.want.Error || !slices.Equal(got.Audiences, tc.want.Audiences) {
				t.Errorf("status = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func identify(r *http.Request) (*authenticator.Response, bool, error) {
	if _, ok := request.UserFrom(r.Context()); ok || len(r.Header) != 1 {
		return nil, false, errors.New("the requesting user's identity leaked")
	}
	audiences, _ := authenticator.AudiencesFrom(r.Context())
	switch r.Header.Get("Authorization") {
	case "Bearer good":
		return &authenticator.Response{User: jane, Audiences: audiences}, true, nil
	case "Bearer careless":
		return &authenticator.Response{User: jane}, true, nil
	case "Bearer bad":
		return nil, false, errors.New("invalid bearer token")
	}
	return nil, false, nil
}

// post runs the declaration of the review's type, as jane.
func post(t *testing.T, env *resource.Env, review resource.Object) (runtime.Object, error) {
	t.Helper()
	for _, d := range Kinds() {
		k := d.Kind()
		if reflect.TypeOf(k.New()) == reflect.TypeOf(review) {
			return k.Answer(request.WithUser(t.Context(), jane), env, review, false)
		}
	}
	t.Fatalf("no kind for %T", review)
	return nil, nil
}
