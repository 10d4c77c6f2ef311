package bootstrap

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestTheDateOfTokenTrackingStaysIfItIsValid(t *testing.T) {
	now := time.Date(2026, 3, 1, 23, 0, 0, 0, time.FixedZone("west", -3600*2))
	for since, want := range map[string]string{"2026-01-05": "2026-01-05", "yesterday": "2026-03-02", "": "2026-03-02"} {
		client := fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: tokenTrackingConfigMap}, Data: map[string]string{"since": since},
		})
		if err := EnsureTokenTracking(t.Context(), client.CoreV1(), now); err != nil {
			t.Fatal(err)
		}
		config, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), tokenTrackingConfigMap, metav1.GetOptions{})
		if err != nil || config.Data["since"] != want {
			t.Errorf("%q becomes %v, want %s (%v)", since, config.Data, want, err)
		}
	}
}
