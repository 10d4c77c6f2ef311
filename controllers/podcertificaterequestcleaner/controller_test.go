package podcertificaterequestcleaner

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestARequestIsDeletedAfter15MinutesInWhateverState(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		age     time.Duration
		state   string
		deleted bool
		after   time.Duration
	}{
		{0, "", false, 15 * time.Minute},
		{14 * time.Minute, certificatesv1.PodCertificateRequestConditionTypeIssued, false, time.Minute},
		{15 * time.Minute, "", true, 0},
		{time.Hour, certificatesv1.PodCertificateRequestConditionTypeDenied, true, 0},
	} {
		request := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "r", UID: "u", CreationTimestamp: metav1.NewTime(created)}}
		if test.state != "" {
			request.Status.Conditions = []metav1.Condition{{Type: test.state}}
		}
		c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(request).Build()
		key := client.ObjectKeyFromObject(request)
		result, err := (&reconciler{c, func() time.Time { return created.Add(test.age) }}).Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil || result.RequeueAfter != test.after {
			t.Errorf("%v: %v, %v", test.age, result, err)
		}
		if deleted := apierrors.IsNotFound(c.Get(t.Context(), key, request)); deleted != test.deleted {
			t.Errorf("%v: deleted: %t", test.age, deleted)
		}
	}
}
