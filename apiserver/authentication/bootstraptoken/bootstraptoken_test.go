package bootstraptoken

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const good = "abcdef.0123456789abcdef"

// secret returns the secret of the token good.
func secret() *corev1.Secret {
	return &corev1.Secret{
		Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
		},
	}
}

// set returns a change that sets a key.
func set(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func TestTheUserOfABootstrapToken(t *testing.T) {
	const rejected = ""
	for _, test := range []struct {
		rule, token string
		change      func(*corev1.Secret)
		want        string
	}{
		{"a token has a user and a group", good, nil, "system:bootstrap:abcdef [system:bootstrappers]"},
		{"further groups are added", good, set("auth-extra-groups", "system:bootstrappers:worker,system:bootstrappers:a"),
			"system:bootstrap:abcdef [system:bootstrappers system:bootstrappers:a system:bootstrappers:worker]"},
		{"another group is rejected", good, set("auth-extra-groups", "system:bootstrappers:a,system:masters"), rejected},
		{"another key is rejected", "abcdef.0123456789abcdee", nil, rejected},
		{"another ID is rejected", "abcdee.0123456789abcdef", nil, rejected},
		{"another form is rejected", "abcdef.0123456789abcdef ", nil, rejected},
		{"capitals are another form", "ABCDEF.0123456789abcdef", nil, rejected},
		{"a token is valid before its expiration", good, set("expiration", "2026-01-01T12:00:01Z"), "system:bootstrap:abcdef [system:bootstrappers]"},
		{"a token expires", good, set("expiration", "2026-01-01T12:00:00Z"), rejected},
		{"an expiration that cannot be read has passed", good, set("expiration", "tomorrow"), rejected},
		{"a token for signing only is rejected", good, set("usage-bootstrap-authentication", "false"), rejected},
		{"only the word true allows the usage", good, set("usage-bootstrap-authentication", "True"), rejected},
		{"a secret of another token is rejected", good, set("token-id", "abcdee"), rejected},
		{"a secret of another type is rejected", good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, rejected},
		{"a secret without data is rejected", good, func(s *corev1.Secret) { s.Data = nil }, rejected},
		{"a secret that is being deleted is rejected", good, func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }, rejected},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := secret()
			if test.change != nil {
				test.change(s)
			}
			a := New(func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
				if namespace != "kube-system" || name != "bootstrap-token-abcdef" {
					return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
				}
				return s, nil
			}, clocktesting.NewFakePassiveClock(now))
			resp, ok, err := a.AuthenticateToken(t.Context(), test.token)
			if err != nil || ok != (test.want != rejected) {
				t.Fatalf("got %v, %v, %v", resp, ok, err)
			}
			if ok && fmt.Sprint(resp.User.GetName(), " ", resp.User.GetGroups()) != test.want {
				t.Errorf("got %+v, want %s", resp.User, test.want)
			}
		})
	}
}

func TestAnUnreadableSecretIsAnErrorNotARejection(t *testing.T) {
	unavailable := errors.New("etcd is not available")
	a := New(func(context.Context, string, string) (*corev1.Secret, error) { return nil, unavailable }, clocktesting.NewFakePassiveClock(now))
	if _, ok, err := a.AuthenticateToken(t.Context(), good); ok || !errors.Is(err, unavailable) {
		t.Errorf("got %v, %v", ok, err)
	}
}

// TestATokenIsAcceptedByTheWatchAndRejectedByTheNewestState uses a token whose secret the watch
// has reported, while the secret cannot be read or has been changed.
func TestATokenIsAcceptedByTheWatchAndRejectedByTheNewestState(t *testing.T) {
	unavailable := errors.New("etcd is not available")
	for _, test := range []struct {
		rule    string
		watched func(*corev1.Secret) // changes what the watch has reported
		newest  error                // of a read of the secret
		want    bool
		err     error
	}{
		{rule: "without etcd", newest: unavailable, want: true},
		{rule: "expired by now, without etcd", watched: set("expiration", "2026-01-01T12:00:00Z"), newest: unavailable, err: unavailable},
		{rule: "expired by now, and extended just now", watched: set("expiration", "2026-01-01T12:00:00Z"), want: true},
		{rule: "expired by now, and deleted just now", watched: set("expiration", "2026-01-01T12:00:00Z"), newest: apierrors.NewNotFound(corev1.Resource("secrets"), "")},
	} {
		t.Run(test.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				reported := secret()
				reported.Namespace, reported.Name = "kube-system", "bootstrap-token-abcdef"
				if test.watched != nil {
					test.watched(reported)
				}
				a := New(func(context.Context, string, string) (*corev1.Secret, error) { return secret(), test.newest }, clocktesting.NewFakePassiveClock(now))
				a.Follow(fake.NewClientset(reported))
				go a.Run(ctx)
				a.wake()
				synctest.Wait()
				if _, ok, err := a.AuthenticateToken(ctx, good); ok != test.want || !errors.Is(err, test.err) {
					t.Errorf("got %v, %v", ok, err)
				}
			})
		})
	}
}

// TestGuessesAreReadAtALimitedRate guesses tokens until their secrets are not read any more. A
// token that the watch has reported is valid nevertheless.
func TestGuessesAreReadAtALimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stored := secret()
		stored.Namespace, stored.Name = "kube-system", "bootstrap-token-abcdef"
		client := fake.NewClientset(stored)
		var reads atomic.Int32
		a := New(func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
			reads.Add(1)
			return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		}, clock.RealClock{})
		a.Follow(client)
		go a.Run(ctx)
		accepted := func(token string) bool {
			_, ok, err := a.AuthenticateToken(ctx, token)
			if err != nil && !errors.Is(err, errTooMany) {
				t.Error(err)
			}
			return ok
		}
		synctest.Wait()
		if calls := client.Actions(); len(calls) > 0 {
			t.Errorf("requests before the first token: %v", calls)
		}
		const guesses = 1000
		for i := range guesses {
			if accepted(fmt.Sprintf("abcdef.%016d", i)) || accepted(fmt.Sprintf("%06d.0123456789abcdef", i)) {
				t.Fatal("a guess was accepted")
			}
		}
		if n := reads.Load(); n > unknownBurst {
			t.Errorf("%d reads for %d guesses at one time", n, 2*guesses)
		}
		synctest.Wait() // for the watch
		if !accepted(good) {
			t.Error("a token was rejected that the watch has reported")
		}
		if err := client.CoreV1().Secrets(stored.Namespace).Delete(ctx, stored.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the watch
		if accepted(good) {
			t.Error("a deleted token was accepted")
		}
		time.Sleep(time.Second) // of the test's clock
		before := reads.Load()
		for range guesses {
			accepted("abcdee.0123456789abcdef")
		}
		if n := reads.Load() - before; n != unknownRate {
			t.Errorf("%d reads after a second, want %d", n, unknownRate)
		}
	})
}

// TestAValidTokenOutlastsGuessesBeforeTheWatch uses a valid token after as many guesses as are
// read at once, while the API server does not answer the watch's list yet.
func TestAValidTokenOutlastsGuessesBeforeTheWatch(t *testing.T) {
	for name, answers := range map[string]bool{"the list is answered": true, "the list is not answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stored := secret()
				stored.Namespace, stored.Name = "kube-system", "bootstrap-token-abcdef"
				client := fake.NewClientset(stored)
				answer := make(chan struct{})
				wait := func(clienttesting.Action) (bool, runtime.Object, error) { <-answer; return false, nil, nil }
				client.PrependReactor("list", "secrets", wait)
				client.PrependWatchReactor("secrets", func(a clienttesting.Action) (bool, watch.Interface, error) {
					_, _, err := wait(a)
					return false, nil, err
				})
				a := New(func(_ context.Context, _, name string) (*corev1.Secret, error) {
					if name != stored.Name {
						return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
					}
					return stored, nil
				}, clock.RealClock{})
				a.Follow(client)
				go a.Run(ctx)
				for range unknownBurst {
					if _, ok, err := a.AuthenticateToken(ctx, "abcdee.0123456789abcdef"); ok || err != nil {
						t.Fatalf("a guess: %v, %v", ok, err)
					}
				}
				var accepted bool
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, accepted, err = a.AuthenticateToken(ctx, good)
				}()
				synctest.Wait()
				if answers {
					close(answer)
				}
				<-done
				if accepted != answers || (err != nil) == answers {
					t.Errorf("got %v, %v", accepted, err)
				}
				if !answers {
					close(answer)
				}
			})
		})
	}
}
