package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
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
