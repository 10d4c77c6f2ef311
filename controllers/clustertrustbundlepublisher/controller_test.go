package clustertrustbundlepublisher

import (
	"fmt"
	"maps"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/versions"
)

func TestThereIsOneBundleWithTheCertificatesOfTheServer(t *testing.T) {
	// The name of kube-controller-manager for the content "PEM".
	const current = "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
	bundleOf := func(name, signer, content string) *bundle {
		return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: content}}
	}
	for _, test := range []struct {
		rule   string
		before []*bundle
		after  map[string]string
	}{
		{"it is created", nil, map[string]string{current: "PEM"}},
		{"another content is replaced", []*bundle{bundleOf(current, signer, "other")}, map[string]string{current: "PEM"}},
		{"one of earlier certificates is deleted", []*bundle{bundleOf("kubernetes.io:kube-apiserver-serving:old", signer, "old")}, map[string]string{current: "PEM"}},
		{"those of other signers and of none stay",
			[]*bundle{bundleOf("example.com:s:a", "example.com/s", "A"), bundleOf("b", "", "B")},
			map[string]string{current: "PEM", "example.com:s:a": "A", "b": "B"}},
	} {
		for _, version := range bundles {
			t.Run(fmt.Sprintf("%s %T", test.rule, version.Object), func(t *testing.T) {
				var before []client.Object
				for _, b := range test.before {
					before = append(before, version.Made(b))
				}
				c := versions.Client[bundle]{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(before...).Build(), Version: version}
				for range 2 {
					if _, err := (&reconciler{c, "PEM"}).Reconcile(t.Context(), request()); err != nil {
						t.Fatal(err)
					}
				}
				all, err := c.List(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, b := range all {
					got[b.Name] = b.Spec.TrustBundle
				}
				if !maps.Equal(got, test.after) {
					t.Errorf("got %v, want %v", got, test.after)
				}
			})
		}
	}
}
