package objects

import (
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

func TestTokensAreRenewedAfterEightyPercentOfTheirLifetimeOrADay(t *testing.T) {
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		life   time.Duration
		random float64
		want   time.Duration
	}{
		{time.Hour, 0, 48 * time.Minute},
		{time.Hour, 0.5, 48*time.Minute - 5*time.Second},
		{10 * time.Minute, 0, 8 * time.Minute},
		{365 * 24 * time.Hour, 0, 24 * time.Hour},
		{30 * time.Hour, 0, 24 * time.Hour},
		{29 * time.Hour, 0, 29 * time.Hour * 4 / 5},
	} {
		request := &authenticationv1.TokenRequest{
			Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(test.life.Seconds()))},
			Status: authenticationv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(issued.Add(test.life))},
		}
		if got := renewal(request, test.random).Sub(issued); got != test.want {
			t.Errorf("one of %v is renewed after %v, want %v", test.life, got, test.want)
		}
	}
}

func TestTokensLiveAndAreRenewed(t *testing.T) {
	s := newServer(t)
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s.clock = clock
	store, changed := newStore(t, s, func(o *Options) { o.Clock = clock })
	pod := podWith("p", "", "")
	source := &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: ptr.To[int64](3600), Path: "t"}
	token := func() string {
		t.Helper()
		text, err := store.Token(t.Context(), pod, source)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	store.Register(pod)
	if first, again := token(), token(); first != "token 1" || again != "token 1" {
		t.Fatalf("got %q and %q", first, again)
	}
	spec := s.tokens[0].Spec
	if ref := spec.BoundObjectRef; ref == nil || ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Name != "p" || ref.UID != "p" {
		t.Errorf("bound to %v", ref)
	}
	if !slices.Equal(spec.Audiences, []string{"vault"}) {
		t.Errorf("audiences %v", spec.Audiences)
	}
	if s.asked("create namespaces/n/serviceaccounts/gardener/token") != 1 {
		t.Errorf("asked: %v", s.requests)
	}

	// The periodic check for due tokens reports nothing.
	clock.Step(alarmCheck)
	eventually(t, "the timer is set again", clock.HasWaiters)
	clock.Step(38 * time.Minute)
	if pods := changed.wait(t); !slices.Equal(pods, []types.UID{"p"}) {
		t.Errorf("told of %v", pods)
	}
	if got := token(); got != "token 2" {
		t.Errorf("when due: %q", got)
	}

	// The API server does not issue another token: the old one is used, and the
	// renewal is retried.
	clock.Step(48 * time.Minute)
	changed.wait(t)
	eventually(t, "the timer is set again", clock.HasWaiters)
	s.setRefuse(http.StatusInternalServerError)
	if got := token(); got != "token 2" {
		t.Errorf("while the API is away: %q", got)
	}
	clock.Step(tokenRetry)
	changed.wait(t)
	clock.Step(20 * time.Minute)
	if _, err := store.Token(t.Context(), pod, source); err == nil {
		t.Error("an expired token was given")
	}
	s.setRefuse(0)
	if got := token(); got != "token 3" {
		t.Errorf("when the API is back: %q", got)
	}
	store.Unregister("p")
	if len(store.tokens.byKey) > 0 || store.alarm.timer != nil {
		t.Error("tokens of a pod that is gone are kept")
	}
}

func TestAPodWithoutAServiceAccountHasTokensOfTheDefaultOne(t *testing.T) {
	s := newServer(t)
	store, _ := newStore(t, s, func(*Options) {})
	pod := podWith("p", "", "")
	pod.Spec.ServiceAccountName = ""
	store.Register(pod)
	if text, err := store.Token(t.Context(), pod, &corev1.ServiceAccountTokenProjection{Path: "t", ExpirationSeconds: ptr.To[int64](3600)}); err != nil || text != "token 1" {
		t.Errorf("got %q, %v", text, err)
	}
	if s.asked("create namespaces/n/serviceaccounts/default/token") != 1 {
		t.Errorf("asked: %v", s.requests)
	}
}
