package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func validStatefulSet(t *testing.T) *appsv1.StatefulSet {
	s := resourcetest.Read(t, statefulSets.Kind(), "testdata/statefulsets/claims/input.yaml").(*appsv1.StatefulSet)
	s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{}
	defaultStatefulSet(s)
	return s
}

func TestValidateStatefulSet(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(s *appsv1.StatefulSet)
		want   []string
	}{
		{"a defaulted set is valid", func(*appsv1.StatefulSet) {}, nil},
		{"the order of pods is known", func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "Random" }, []string{
			`spec.podManagementPolicy: Invalid value: "Random": must be 'OrderedReady' or 'Parallel'`,
		}},
		{"the update strategy is known", func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: "Fast"}
		}, []string{
			`spec.updateStrategy: Invalid value: {"type":"Fast"}: must be 'RollingUpdate' or 'OnDelete'`,
		}},
		{"OnDelete has no rolling update", func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		}, []string{
			`spec.updateStrategy.rollingUpdate: Invalid value: {"partition":0}: only allowed for updateStrategy 'RollingUpdate'`,
		}},
		{"maxUnavailable is not zero", func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(0))
		}, []string{
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
		}},
		{"counts are not negative", func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.MinReadySeconds, s.Spec.Ordinals = ptr.To[int32](-1), -2, &appsv1.StatefulSetOrdinals{Start: -3}
			s.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](-4)
		}, []string{
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
			"spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
			"spec.ordinals.start: Invalid value: -3: must be greater than or equal to 0",
			"spec.updateStrategy.rollingUpdate.partition: Invalid value: -4: must be greater than or equal to 0",
		}},
		{"the retention of claims is known", func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = "Keep"
		}, []string{
			`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": supported values: "Retain", "Delete"`,
		}},
		{"the selector is not empty", func(s *appsv1.StatefulSet) { s.Spec.Selector = &metav1.LabelSelector{} }, []string{
			"spec.selector: Invalid value: {}: empty selector is invalid for statefulset",
		}},
		{"host name and subdomain of the template do not matter", func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Hostname, s.Spec.Template.Spec.Subdomain = "Not Valid", "Not Valid"
		}, nil},
		{"pods restart always", func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }, []string{
			`spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values: "Always"`,
		}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := validStatefulSet(t)
			test.change(s)
			resourcetest.Errors(t, append(validateStatefulSet(s), validateTemplateOfSet(s)...), test.want...)
		})
	}
}

func TestStatefulSetSpecIsImmutableButForSomeFields(t *testing.T) {
	const forbidden = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
	for _, test := range []struct {
		rule   string
		change func(s *appsv1.StatefulSetSpec)
		want   []string
	}{
		{"what may change", func(s *appsv1.StatefulSetSpec) {
			s.Replicas, s.Ordinals, s.MinReadySeconds, s.RevisionHistoryLimit = ptr.To[int32](9), &appsv1.StatefulSetOrdinals{Start: 1}, 5, ptr.To[int32](1)
			s.Template.Labels["new"], s.UpdateStrategy.Type = "label", appsv1.OnDeleteStatefulSetStrategyType
			s.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		}, nil},
		{"the selector", func(s *appsv1.StatefulSetSpec) { s.Selector.MatchLabels["app"] = "web" }, []string{forbidden}},
		{"the service", func(s *appsv1.StatefulSetSpec) { s.ServiceName = "other" }, []string{forbidden}},
		{"the claims", func(s *appsv1.StatefulSetSpec) { s.VolumeClaimTemplates = nil }, []string{
			forbidden, `spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"`,
		}},
		{"the order of pods", func(s *appsv1.StatefulSetSpec) { s.PodManagementPolicy = appsv1.ParallelPodManagement }, []string{forbidden}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			old := validStatefulSet(t)
			s := old.DeepCopy()
			test.change(&s.Spec)
			resourcetest.Errors(t, validateStatefulSetUpdate(s, old), test.want...)
		})
	}
}

func TestClaimTemplatesAreVolumesOfThePods(t *testing.T) {
	spec := &appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "log"}}}}
	spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "tmp"}}
	volumes := podTemplateOf(spec).Spec.Volumes
	if len(volumes) != 3 || volumes[0].PersistentVolumeClaim == nil || volumes[1].Name != "tmp" || volumes[2].Name != "log" {
		t.Errorf("volumes are %v, want the claim data in its place, tmp, and the claim log", volumes)
	}
	if spec.Template.Spec.Volumes[0].PersistentVolumeClaim != nil {
		t.Error("the set was modified")
	}
}

func TestQuantitiesOfClaimTemplatesAreRoundedUpToAThousandth(t *testing.T) {
	set := validStatefulSet(t)
	tiny := corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("1.5m")}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: tiny.DeepCopy()}},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: tiny.DeepCopy(), AllocatedResources: tiny.DeepCopy()},
	}}
	defaultStatefulSet(set)
	claim := &set.Spec.VolumeClaimTemplates[0]
	for what, list := range map[string]corev1.ResourceList{
		"requests": claim.Spec.Resources.Requests, "capacity": claim.Status.Capacity, "allocated resources": claim.Status.AllocatedResources,
	} {
		if got := list.Storage().String(); got != "2m" {
			t.Errorf("the %s are %s, want 2m", what, got)
		}
	}
}

func TestValidateNewStatefulSet(t *testing.T) {
	s := validStatefulSet(t)
	resourcetest.Errors(t, validateNewStatefulSet(s))
	s.Spec.ServiceName = "a.b"
	s.Spec.VolumeClaimTemplates[0].Spec.AccessModes = nil
	resourcetest.Errors(t, validateNewStatefulSet(s),
		`spec.serviceName: Invalid value: "a.b": must not contain dots`,
		"spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required")
}

func TestStatefulSetNameIsALabel(t *testing.T) {
	if msgs := statefulSets.NameRule("a.b", false); len(msgs) == 0 {
		t.Error("a.b is accepted as a name")
	}
}

func TestValidateStatefulSetStatus(t *testing.T) {
	now := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Replicas: 1, ReadyReplicas: 1, CurrentReplicas: 2, UpdatedReplicas: 2, AvailableReplicas: -1, CollisionCount: ptr.To[int32](1)}}
	old := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{CollisionCount: ptr.To[int32](2)}}
	resourcetest.Errors(t, validateStatefulSetStatus(now, old),
		"status.availableReplicas: Invalid value: -1: must be greater than or equal to 0",
		"status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas",
		"status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas",
		"status.collisionCount: Invalid value: 1: cannot be decremented")
}

// Kubernetes 1.28 does not validate the template.
func TestAStatefulSetThatIsStoredWithAnInvalidTemplateCanBeUpdated(t *testing.T) {
	const missing = `spec.template.spec.containers[0].image: Required value`
	noImage := func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "" }
	k := statefulSets.Kind()
	for _, test := range []struct {
		rule        string
		was, change func(s *appsv1.StatefulSet)
		want        []string
	}{
		{"a valid template stays valid", func(*appsv1.StatefulSet) {}, noImage, []string{missing}},
		{"an invalid one may stay", noImage, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](0) }, nil},
		{"beside other invalid fields, too", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](-1) }, noImage, nil},
		{"other fields are validated", noImage, func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](-1) },
			[]string{"spec.replicas: Invalid value: -1: must be greater than or equal to 0"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			old := validStatefulSet(t)
			test.was(old)
			s := old.DeepCopy()
			s.Spec.Replicas = ptr.To[int32](1)
			test.change(s)
			resourcetest.Errors(t, append(k.Validate(s), k.ValidateUpdate(s, old)...), test.want...)
		})
	}
	s := validStatefulSet(t)
	noImage(s)
	resourcetest.Errors(t, append(k.Validate(s), k.ValidateCreate(s)...), missing)
}
