package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestRefersToSecret(t *testing.T) {
	for spec, want := range map[string]bool{
		`{}`:                            false,
		`imagePullSecrets: [{name: a}]`: true,
		`containers: [{env: [{name: a, valueFrom: {secretKeyRef: {name: a, key: b}}}]}]`:     true,
		`containers: [{env: [{name: a, valueFrom: {configMapKeyRef: {name: a, key: b}}}]}]`:  false,
		`initContainers: [{envFrom: [{secretRef: {name: a}}]}]`:                              true,
		`ephemeralContainers: [{envFrom: [{secretRef: {name: a}}]}]`:                         true,
		`volumes: [{name: a, secret: {secretName: a}}]`:                                      true,
		`volumes: [{name: a, azureFile: {secretName: a}}]`:                                   true,
		`volumes: [{name: a, projected: {sources: [{configMap: {}}, {secret: {name: a}}]}}]`: true,
		`volumes: [{name: a, projected: {sources: [{configMap: {}}]}}]`:                      false,
		`volumes: [{name: a, csi: {nodePublishSecretRef: {name: a}}}]`:                       true,
		`volumes: [{name: a, cephfs: {secretRef: {name: a}}}]`:                               true,
		`volumes: [{name: a, cinder: {secretRef: {name: a}}}]`:                               true,
		`volumes: [{name: a, flexVolume: {secretRef: {name: a}}}]`:                           true,
		`volumes: [{name: a, iscsi: {secretRef: {name: a}}}]`:                                true,
		`volumes: [{name: a, rbd: {secretRef: {name: a}}}]`:                                  true,
		`volumes: [{name: a, scaleIO: {secretRef: {name: a}}}]`:                              true,
		`volumes: [{name: a, storageos: {secretRef: {name: a}}}]`:                            true,
		`volumes: [{name: a, emptyDir: {}}, {name: b, rbd: {}}]`:                             false,
	} {
		s := &corev1.PodSpec{}
		if err := yaml.UnmarshalStrict([]byte(spec), s); err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if got := RefersToSecret(s); got != want {
			t.Errorf("%s: got %v, want %v", spec, got, want)
		}
	}
}

func TestReferences(t *testing.T) {
	const spec = `
serviceAccountName: account
imagePullSecrets: [{name: pull}, {}]
initContainers: [{env: [{name: a, value: b}, {name: b, valueFrom: {configMapKeyRef: {name: init, key: k}}}]}]
containers: [{envFrom: [{configMapRef: {name: main}}, {secretRef: {name: main}}]}]
ephemeralContainers: [{env: [{name: a, valueFrom: {secretKeyRef: {name: debug, key: k}}}]}]
volumes:
- {name: a, configMap: {name: volume}}
- {name: b, persistentVolumeClaim: {claimName: claim}}
- {name: scratch, ephemeral: {volumeClaimTemplate: {}}}
- {name: d, projected: {sources: [{configMap: {name: projected}}, {secret: {name: projected}}, {serviceAccountToken: {path: t}}]}}
- {name: e, csi: {driver: d, nodePublishSecretRef: {name: driver}}}
- {name: f, emptyDir: {}}`
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	want := []Reference{
		{ServiceAccount, "account"}, {Secret, "pull"}, {ConfigMap, "init"}, {ConfigMap, "main"}, {Secret, "main"}, {Secret, "debug"},
		{ConfigMap, "volume"}, {PersistentVolumeClaim, "claim"}, {PersistentVolumeClaim, "web-scratch"},
		{ConfigMap, "projected"}, {Secret, "projected"}, {Secret, "driver"},
	}
	if got := slices.Collect(References(pod)); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for first := range References(pod) { // ends when the loop does
		if first != want[0] {
			t.Errorf("first: %v", first)
		}
		break
	}
}
