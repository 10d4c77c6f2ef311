package podcertificate

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func request(name string, change ...func(*certificatesv1.PodCertificateRequest)) *certificatesv1.PodCertificateRequest {
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/s"}}
	for _, do := range change {
		do(r)
	}
	return r
}

// issued gives a request a certificate for two hours, which is to be renewed after one.
func issued(r *certificatesv1.PodCertificateRequest) {
	r.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions:       []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued}},
		CertificateChain: "text\n-----BEGIN CERTIFICATE-----\nheader: x\n\nMQ==\n-----END CERTIFICATE-----\n",
		BeginRefreshAt:   ptr.To(metav1.NewTime(start.Add(time.Hour))), NotAfter: ptr.To(metav1.NewTime(start.Add(2 * time.Hour))),
	}
}

func denied(r *certificatesv1.PodCertificateRequest) {
	r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Reason: "UnsupportedKeyType", Message: "no"}}
}

// fresh returns a certificate that was issued at the start, with a jitter.
func fresh(random float64) *Certificate {
	c := &Certificate{}
	c.Requested(request("first"), []byte("key"), start, 0)
	c.Observe(request("first", issued), random)
	return c
}

func TestACertificateIsRenewedAtItsRefreshTimeAndAJitter(t *testing.T) {
	for _, test := range []struct {
		random float64
		want   time.Duration
	}{{0, time.Hour}, {0.5, time.Hour + 150*time.Second}, {0.999, time.Hour + 299700*time.Millisecond}} {
		c := fresh(test.random)
		due := start.Add(test.want)
		if got := c.Next(); !got.Equal(due) || c.Due(due.Add(-time.Nanosecond)) || !c.Due(due) {
			t.Errorf("%v: next at %v, want %v", test.random, got.Sub(start), test.want)
		}
	}
}

func TestTheOldCertificateIsShownUntilTheNextOneIsIssued(t *testing.T) {
	c := fresh(0)
	c.Requested(request("second"), []byte("other"), start.Add(time.Hour), 0)
	c.Observe(request("second"), 0)
	for range 2 {
		if c.Due(start.Add(90*time.Minute)) || c.Pending() != "second" {
			t.Error("another one is due while a request is pending")
		}
		key, chain, err := c.Credentials()
		if string(key) != "key" || string(chain) != "-----BEGIN CERTIFICATE-----\nMQ==\n-----END CERTIFICATE-----\n" || err != nil {
			t.Errorf("got %s %s %v", key, chain, err)
		}
		if c.Observe(request("second"), 0) {
			t.Error("a pending request is final")
		}
	}
	if !c.Observe(request("second", issued), 0) {
		t.Error("an issued request is not final")
	}
	if key, _, _ := c.Credentials(); string(key) != "other" || c.Pending() != "" {
		t.Errorf("key %s, pending %q", key, c.Pending())
	}
}

func TestARefusalIsFinal(t *testing.T) {
	const message = `PodCertificateRequest n/second for signer "example.com/s" was denied, reason="UnsupportedKeyType", message="no"`
	c := fresh(0)
	c.Requested(request("second"), []byte("other"), start.Add(time.Hour), 0)
	if !c.Observe(request("second", denied), 0) {
		t.Error("a refusal is not final")
	}
	if c.Due(start.Add(24*time.Hour)) || !c.Next().IsZero() {
		t.Error("it is requested again")
	}
	if _, _, err := c.Credentials(); err == nil || err.Error() != message {
		t.Errorf("got %v", err)
	}
	if first, again := c.Warnings(start), c.Warnings(start); len(first) != 1 || first[0] != (Warning{"Denied", message}) || len(again) != 0 {
		t.Errorf("warnings %v, then %v", first, again)
	}
}

func TestAnIssuedRequestWithoutACertificateIsARefusal(t *testing.T) {
	for name, change := range map[string]func(*certificatesv1.PodCertificateRequestStatus){
		"no chain": func(s *certificatesv1.PodCertificateRequestStatus) { s.CertificateChain = "text" },
		"no time":  func(s *certificatesv1.PodCertificateRequestStatus) { s.BeginRefreshAt = nil },
		"no end":   func(s *certificatesv1.PodCertificateRequestStatus) { s.NotAfter = nil },
	} {
		c := &Certificate{}
		c.Requested(request("r"), nil, start, 0)
		if final := c.Observe(request("r", issued, func(r *certificatesv1.PodCertificateRequest) { change(&r.Status) }), 0); !final {
			t.Errorf("%s: not final", name)
		}
		if _, _, err := c.Credentials(); err == nil || !strings.Contains(err.Error(), "issued without a certificate or its times") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFailedRequestIsRepeatedAfterADoublingBackOffOfFiveMinutesAtMost(t *testing.T) {
	c, now := &Certificate{}, start
	var delays []string
	for range 11 {
		if !c.Due(now) {
			t.Fatalf("not due after %v", delays)
		}
		c.Failed(errors.New("away"), now, 0)
		if _, _, err := c.Credentials(); err == nil || err.Error() != "away" {
			t.Errorf("got %v", err)
		}
		next := c.Next()
		if c.Due(next.Add(-time.Nanosecond)) {
			t.Errorf("due before %v", next)
		}
		delays = append(delays, next.Sub(now).String())
		now = next
	}
	if got, want := strings.Join(delays, " "), "1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 5m0s 5m0s"; got != want {
		t.Errorf("delays %s, want %s", got, want)
	}
	c = &Certificate{}
	c.Failed(errors.New("away"), start, 0.5)
	if got := c.Next().Sub(start); got != 1500*time.Millisecond {
		t.Errorf("with jitter: %v", got)
	}
}

func TestADeletedRequestIsRepeatedAndOneThatNoWatchShowsAfterTenMinutes(t *testing.T) {
	c := &Certificate{}
	c.Requested(request("r"), nil, start, 0)
	if lost := start.Add(10 * time.Minute); !c.Next().Equal(lost) || c.Due(lost.Add(-time.Nanosecond)) || !c.Due(lost) {
		t.Errorf("next at %v", c.Next())
	}
	c = &Certificate{}
	c.Requested(request("r"), nil, start, 0)
	c.Observe(request("r"), 0)
	if c.Due(start.Add(24*time.Hour)) || !c.Next().IsZero() {
		t.Error("a request that a watch has shown counts as deleted")
	}
	c.Deleted(start, 0)
	if c.Due(start) || !c.Due(start.Add(time.Second)) {
		t.Error("after its deletion there is no back-off of a second")
	}
	if _, _, err := c.Credentials(); err == nil || err.Error() != "PodCertificateRequest r appears to have been deleted" {
		t.Errorf("got %v", err)
	}
}

func TestALateRenewalIsAWarningOnce(t *testing.T) {
	c := fresh(0)
	c.Requested(request("second"), nil, start.Add(time.Hour), 0)
	c.Observe(request("second"), 0)
	var got []string
	for range 3 {
		at := c.Next()
		if at.IsZero() {
			break
		}
		if early := c.Warnings(at.Add(-time.Nanosecond)); len(early) > 0 {
			t.Errorf("too early: %v", early)
		}
		for _, w := range c.Warnings(at) {
			got = append(got, fmt.Sprintf("%v %s: %s", at.Sub(start), w.Reason, w.Message))
		}
	}
	want := "1h10m0s CertificateOverdueForRefresh: PodCertificate refresh overdue, 2h0m0s CertificateExpired: PodCertificate expired"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeysOfEachTypeProveTheirPossession(t *testing.T) {
	for keyType, want := range map[string]x509.PublicKeyAlgorithm{
		"RSA3072": x509.RSA, "RSA4096": x509.RSA, "ECDSAP256": x509.ECDSA, "ECDSAP384": x509.ECDSA, "ECDSAP521": x509.ECDSA, "ED25519": x509.Ed25519,
	} {
		key, stub, err := NewKey(keyType)
		if err != nil {
			t.Fatal(err)
		}
		block, rest := pem.Decode(key)
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Fatalf("%s: the key is %s", keyType, key)
		}
		if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			t.Error(err)
		}
		csr, err := x509.ParseCertificateRequest(stub)
		if err != nil || csr.CheckSignature() != nil || csr.PublicKeyAlgorithm != want || csr.Subject.String() != "" {
			t.Errorf("%s: %v, %v", keyType, csr, err)
		}
	}
	if _, _, err := NewKey("DSA"); err == nil || err.Error() != `unknown key type "DSA"` {
		t.Errorf("got %v", err)
	}
}

func TestARequestNamesThePodItsAccountAndItsNode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "pod"}}
	source := &corev1.PodCertificateProjection{SignerName: "example.com/s", MaxExpirationSeconds: ptr.To[int32](7200), UserAnnotations: map[string]string{"example.com/a": "b"}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa", UID: "account"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "node"}}
	r := Request(pod, source, account, node, []byte("stub"))
	s := r.Spec
	got := fmt.Sprint(r.Namespace, " ", r.GenerateName, " ", r.OwnerReferences[0].Kind, " ", r.OwnerReferences[0].UID, " ", s.SignerName, " ", s.PodName, " ", s.PodUID, " ",
		s.ServiceAccountName, " ", s.ServiceAccountUID, " ", s.NodeName, " ", s.NodeUID, " ", *s.MaxExpirationSeconds, " ", string(s.StubPKCS10Request), " ", s.UnverifiedUserAnnotations)
	if want := "n req- Pod pod example.com/s p pod sa account node1 node 7200 stub map[example.com/a:b]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
