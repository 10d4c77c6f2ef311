package authentication

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestACertificateIsVerifiedAgainAfterTheTTLOrItsExpiry(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		rule        string
		expiry, age time.Duration
		again       bool
	}{
		{"within the TTL", time.Hour, verifiedTTL - time.Second, false},
		{"after the TTL", time.Hour, verifiedTTL + time.Second, true},
		{"after the expiry", 3 * time.Second, 4 * time.Second, true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			clock, verifications := clocktesting.NewFakePassiveClock(start), 0
			v := newVerified(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				verifications++
				return &authenticator.Response{User: &user.DefaultInfo{Name: "ann"}}, true, nil
			}), clock)
			req := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: start.Add(test.expiry)}}}}
			for _, now := range []time.Time{start, start.Add(test.age)} {
				clock.SetTime(now)
				if resp, ok, err := v.AuthenticateRequest(req); !ok || err != nil || resp.User.GetName() != "ann" {
					t.Fatalf("got %v, %v, %v", resp, ok, err)
				}
			}
			if again := verifications == 2; again != test.again {
				t.Errorf("verified %d times", verifications)
			}
		})
	}
}
