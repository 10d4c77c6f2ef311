package bootstrapsigner

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/internal/jointoken"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// token returns the secret of a token that may sign. Further pairs replace its data.
func token(id string, pairs ...string) client.Object {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-signing": []byte("true")},
	}
	for pair := range slices.Chunk(pairs, 2) {
		s.Data[pair[0]] = []byte(pair[1])
	}
	return s
}

func TestReconcile(t *testing.T) {
	const config = "kubeconfig"
	for _, test := range []struct {
		rule    string
		data    map[string]string
		objects []client.Object
		want    []string
		after   time.Duration
	}{
		{"each token signs", map[string]string{config: "x"}, []client.Object{token("aaaaaa"), token("bbbbbb")},
			[]string{"jws-kubeconfig-aaaaaa", "jws-kubeconfig-bbbbbb", config}, 0},
		{"signatures of other tokens are removed", map[string]string{config: "x", "jws-kubeconfig-cccccc": "old", "other": "kept"}, []client.Object{token("aaaaaa")},
			[]string{"jws-kubeconfig-aaaaaa", config, "other"}, 0},
		{"a token for authentication only does not sign", map[string]string{config: "x"}, []client.Object{token("aaaaaa", "usage-bootstrap-signing", "")},
			[]string{config}, 0},
		{"an expired token does not sign", map[string]string{config: "x"}, []client.Object{token("aaaaaa", "expiration", "2026-01-01T11:00:00Z")},
			[]string{config}, 0},
		{"a signature is removed when its token expires", map[string]string{config: "x"},
			[]client.Object{token("aaaaaa", "expiration", "2026-01-01T12:10:00Z"), token("bbbbbb", "expiration", "2026-01-01T12:05:00Z")},
			[]string{"jws-kubeconfig-aaaaaa", "jws-kubeconfig-bbbbbb", config}, 5 * time.Minute},
		{"a token whose ID is not that of its name does not sign", map[string]string{config: "x"}, []client.Object{token("aaaaaa", "token-id", "bbbbbb")},
			[]string{config}, 0},
		{"without a kubeconfig nothing is signed", map[string]string{"other": "x"}, []client.Object{token("aaaaaa")}, []string{"other"}, 0},
	} {
		t.Run(test.rule, func(t *testing.T) {
			info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterInfo.Namespace, Name: clusterInfo.Name}, Data: test.data}
			c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(test.objects, info)...).Build()
			r := &reconciler{c, func() time.Time { return now }}
			for range 2 { // the second finds all done
				result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: clusterInfo})
				if err != nil || result.RequeueAfter != test.after {
					t.Fatalf("got %v, %v", result, err)
				}
			}
			if err := c.Get(t.Context(), clusterInfo, info); err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(info.Data)); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// The expected signatures are those of kubeadm's library.
func TestSignaturesAreThoseThatKubeadmExpects(t *testing.T) {
	for content, want := range map[string]string{
		"Hello from the other side. I must have called a thousand times.": "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8",
		"": "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk",
	} {
		if got, err := jointoken.Sign(content, "joshua", "my voice is my passcode"); err != nil || got != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}
