package volumelabel

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apiserver/admission/admissiontest"
)

func TestVolumesOfProvisionersGetAnAffinityToTheirZone(t *testing.T) {
	cloud := corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}}
	driver := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
	both := map[string]string{corev1.LabelTopologyZone: "b__a", corev1.LabelTopologyRegion: "r"}
	for _, test := range []struct {
		rule        string
		source      corev1.PersistentVolumeSource
		labels      map[string]string
		provisioned bool
		want        string
	}{
		{"labels of a provisioner", cloud, both, true, "topology.kubernetes.io/zone=a,b topology.kubernetes.io/region=r"},
		{"earlier labels", cloud, map[string]string{corev1.LabelFailureDomainBetaZone: "a", corev1.LabelFailureDomainBetaRegion: "r"}, true,
			"failure-domain.beta.kubernetes.io/zone=a failure-domain.beta.kubernetes.io/region=r"},
		{"of a driver", driver, both, true, "topology.kubernetes.io/zone=a,b topology.kubernetes.io/region=r"},
		{"a driver without labels", driver, nil, true, ""},
		{"labels of a user for a driver", driver, both, false, ""},
		{"labels of a user for a cloud", cloud, both, false, "refused: the zone of the volume is not known"},
		{"a cloud without labels", cloud, nil, true, "refused: the zone of the volume is not known"},
		{"no zone", cloud, map[string]string{corev1.LabelTopologyZone: "a__", corev1.LabelTopologyRegion: "r"}, true, "refused: failed to convert label string for Zone: a__ to a Set"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: test.labels}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: test.source}}
			if test.provisioned {
				volume.Annotations = map[string]string{provisionedBy: "x"}
			}
			err := admissiontest.Server{}.Start(t, Register).Send(t, admissiontest.Request{Object: volume})
			if reason, refused := strings.CutPrefix(test.want, "refused: "); refused {
				if err == nil || !strings.Contains(err.Error(), reason) {
					t.Errorf("got %v, want %s", err, reason)
				}
				return
			}
			if got := affinity(volume); err != nil || got != test.want {
				t.Errorf("got %s and %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestTheAffinityOfAVolumeIsExtended(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: map[string]string{provisionedBy: "x"}, Labels: map[string]string{
		corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "r",
	}}}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"mine"}}}},
	}}}
	if err := (admissiontest.Server{}).Start(t, Register).Send(t, admissiontest.Request{Object: volume}); err != nil {
		t.Fatal(err)
	}
	if got, want := affinity(volume), "topology.kubernetes.io/zone=mine topology.kubernetes.io/region=r"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// affinity returns the requirements of the volume's affinity on one line.
func affinity(volume *corev1.PersistentVolume) string {
	if volume.Spec.NodeAffinity == nil {
		return ""
	}
	var parts []string
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			parts = append(parts, r.Key+"="+strings.Join(r.Values, ","))
		}
	}
	return strings.Join(parts, " ")
}
