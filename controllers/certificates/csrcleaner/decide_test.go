package csrcleaner

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWhenARequestIsDeleted(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	// Valid for a year.
	certificate, _, err := cert.GenerateSelfSignedCertKey("a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind certificatesv1.RequestConditionType, age time.Duration) []certificatesv1.CertificateSigningRequestCondition {
		return []certificatesv1.CertificateSigningRequestCondition{{Type: kind, LastUpdateTime: metav1.NewTime(now.Add(-age))}}
	}
	for _, test := range []struct {
		rule       string
		age        time.Duration
		conditions []certificatesv1.CertificateSigningRequestCondition
		issued     []byte
		deleted    bool
		requeue    time.Duration
	}{
		{rule: "a pending one after a day", age: 24 * time.Hour, deleted: true},
		{rule: "a pending one is kept for a day", age: 23 * time.Hour, requeue: time.Hour},
		{rule: "an issued one after an hour", age: 2 * time.Hour, conditions: condition(certificatesv1.CertificateApproved, time.Hour), issued: certificate, deleted: true},
		{rule: "an issued one is kept for an hour", age: 2 * time.Hour, conditions: condition(certificatesv1.CertificateApproved, 50*time.Minute), issued: certificate, requeue: 10 * time.Minute},
		{rule: "an approved one that is not signed after a day", age: 30 * time.Hour, conditions: condition(certificatesv1.CertificateApproved, 24*time.Hour), deleted: true},
		{rule: "a denied one after an hour", age: time.Hour, conditions: condition(certificatesv1.CertificateDenied, time.Hour), deleted: true},
		{rule: "a failed one after an hour", age: time.Hour, conditions: condition(certificatesv1.CertificateFailed, time.Hour), deleted: true},
		{rule: "a denied one is kept for an hour", age: time.Hour, conditions: condition(certificatesv1.CertificateDenied, 0), requeue: time.Hour},
	} {
		t.Run(test.rule, func(t *testing.T) {
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-test.age))},
				Status:     certificatesv1.CertificateSigningRequestStatus{Conditions: test.conditions, Certificate: test.issued},
			}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(csr).Build()
			result, err := (&reconciler{c, func() time.Time { return now }}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "a"}})
			if err != nil || result.RequeueAfter != test.requeue {
				t.Errorf("got %v, %v, want %s", result, err, test.requeue)
			}
			if deleted := apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr)); deleted != test.deleted {
				t.Errorf("deleted: %v", deleted)
			}
		})
	}
}

func TestARequestWhoseCertificateHasExpiredIsDeleted(t *testing.T) {
	certificate, _, err := cert.GenerateSelfSignedCertKey("a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, why := due(&certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: certificate}})
	if want := expiry(certificate); want.IsZero() || !at.Equal(want) || why != "its certificate has expired" {
		t.Errorf("got %s, %q; want %s", at, why, want)
	}
	if got := expiry([]byte("no PEM")); !got.IsZero() {
		t.Errorf("what is no certificate expires at %s", got)
	}
}
