package clustertrustbundlepublisher

import (
	"maps"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestThereIsOneBundleWithTheCertificatesOfTheServer(t *testing.T) {
	// The name of kube-controller-manager for the content "PEM".
	const current = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
	bundle := func(name, signer, content string) client.Object {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: content}}
	}
	for _, test := range []struct {
		rule   string
		before []client.Object
		after  map[string]string
	}{
		{"it is created", nil, map[string]string{current: "PEM"}},
		{"another content is replaced", []client.Object{bundle(current, signer, "other")}, map[string]string{current: "PEM"}},
		{"one of earlier certificates is deleted", []client.Object{bundle("kubernetes.io:kube-apiserver-serving:old", signer, "old")}, map[string]string{current: "PEM"}},
		{"those of other signers and of none stay",
			[]client.Object{bundle("example.com:s:a", "example.com/s", "A"), bundle("b", "", "B")},
			map[string]string{current: "PEM", "example.com:s:a": "A", "b": "B"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(test.before...).Build()
			for range 2 {
				if _, err := (&reconciler{c, "PEM"}).Reconcile(t.Context(), request()); err != nil {
					t.Fatal(err)
				}
			}
			var all certificatesv1.ClusterTrustBundleList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, b := range all.Items {
				got[b.Name] = b.Spec.TrustBundle
			}
			if !maps.Equal(got, test.after) {
				t.Errorf("got %v, want %v", got, test.after)
			}
		})
	}
}
