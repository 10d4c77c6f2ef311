package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidatePersistentVolumeClaimSpec(t *testing.T) {
	snapshot := &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
	for _, test := range []struct {
		rule   string
		change func(s *corev1.PersistentVolumeClaimSpec)
		want   []string
	}{
		{"access and storage are enough", func(*corev1.PersistentVolumeClaimSpec) {}, nil},
		{"access and storage are required", func(s *corev1.PersistentVolumeClaimSpec) { *s = corev1.PersistentVolumeClaimSpec{} }, []string{
			"spec.accessModes: Required value: at least 1 access mode is required",
			"spec.resources[storage]: Required value",
		}},
		{"the access is known", func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = []corev1.PersistentVolumeAccessMode{"Execute"}
		}, []string{
			`spec.accessModes: Unsupported value: "Execute": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
		}},
		{"the access of one pod is the only one", func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = append(s.AccessModes, corev1.ReadWriteOncePod)
		}, []string{
			"spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
		}},
		{"storage is more than nothing", func(s *corev1.PersistentVolumeClaimSpec) {
			s.Resources.Requests[corev1.ResourceStorage] = quantity.MustParse("0")
		}, []string{
			`spec.resources[storage]: Invalid value: "0": must be greater than zero`,
		}},
		{"the mode is known", func(s *corev1.PersistentVolumeClaimSpec) {
			s.VolumeMode = ptr.To(corev1.PersistentVolumeMode("Tape"))
		}, []string{
			`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
		}},
		{"an empty class is allowed", func(s *corev1.PersistentVolumeClaimSpec) { s.StorageClassName = ptr.To("") }, nil},
		{"a source of the core group is a claim", func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = &corev1.TypedLocalObjectReference{Kind: "Secret"}
		}, []string{
			"spec.dataSource.name: Required value",
			`spec.dataSource: Invalid value: "Secret": must be 'PersistentVolumeClaim' when referencing the default apiGroup`,
		}},
		{"both sources agree", func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = snapshot
			s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: snapshot.APIGroup, Kind: snapshot.Kind, Name: "other"}
		}, []string{
			`spec: Invalid value: "spec.dataSource": must match dataSourceRef`,
		}},
		{"a source in another namespace is the only one", func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = snapshot
			s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: snapshot.APIGroup, Kind: snapshot.Kind, Name: snapshot.Name, Namespace: ptr.To("other")}
		}, []string{
			`spec: Invalid value: "spec.dataSource": may not be specified when dataSourceRef.namespace is specified`,
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			spec := &corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}},
			}
			DefaultClaimSpec(spec)
			test.change(spec)
			resourcetest.Errors(t, ValidateClaimSpec(spec, field.NewPath("spec")), test.want...)
		})
	}
}
