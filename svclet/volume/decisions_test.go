package volume

import (
	"io/fs"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func memoryLimit(limits ...string) *corev1.Pod {
	pod := &corev1.Pod{}
	for _, limit := range limits {
		c := corev1.Container{}
		if limit != "" {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func TestMemoryBackedVolumesHaveTheSmallestOfTheirLimits(t *testing.T) {
	podLevel := memoryLimit("", "")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("40Mi")}}
	for _, test := range []struct {
		name        string
		pod         *corev1.Pod
		limit       string
		allocatable string
		want        string
	}{
		{"the node's", memoryLimit(""), "", "100Mi", "100Mi"},
		{"the pod's", memoryLimit("10Mi", "20Mi"), "", "100Mi", "30Mi"},
		{"one container is without", memoryLimit("10Mi", ""), "", "100Mi", "100Mi"},
		{"the pod's own", podLevel, "", "100Mi", "40Mi"},
		{"its own", memoryLimit("10Mi"), "1Mi", "100Mi", "1Mi"},
		{"its own is larger than the pod's", memoryLimit("10Mi"), "50Mi", "100Mi", "10Mi"},
		{"zero is none", memoryLimit(""), "0", "100Mi", "100Mi"},
		{"nothing is known", memoryLimit(""), "", "", "0"},
	} {
		var limit *resource.Quantity
		if test.limit != "" {
			limit = ptr.To(resource.MustParse(test.limit))
		}
		allocatable := corev1.ResourceList{}
		if test.allocatable != "" {
			allocatable[corev1.ResourceMemory] = resource.MustParse(test.allocatable)
		}
		want := resource.MustParse(test.want)
		if got := memorySize(test.pod, limit, allocatable); got != want.Value() {
			t.Errorf("%s: %d, want %d", test.name, got, want.Value())
		}
	}
}

func TestHugePageSizesAreThoseThatContainersRequest(t *testing.T) {
	asking := func(names ...string) *corev1.Pod {
		requests := corev1.ResourceList{}
		for _, name := range names {
			requests[corev1.ResourceName(name)] = resource.MustParse("1Gi")
		}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}}
	}
	for _, test := range []struct {
		medium corev1.StorageMedium
		pod    *corev1.Pod
		want   string
	}{
		{"HugePages", asking("hugepages-2Mi"), "2Mi"},
		{"HugePages", asking("hugepages-2Mi", "hugepages-1Gi"), ""},
		{"HugePages-1Gi", asking("hugepages-2Mi", "hugepages-1Gi"), "1Gi"},
		{"HugePages-1Gi", asking("hugepages-2Mi"), ""},
		{"HugePages-many", asking("hugepages-2Mi"), ""},
		{"HugePages-1e-999999999", asking("hugepages-2Mi"), ""}, // which takes minutes to compute
		{"HugePages", asking("memory"), ""},
	} {
		got, err := pageSize(test.pod, test.medium)
		if got != test.want || (err == nil) == (test.want == "") {
			t.Errorf("%s: %q, %v; want %q", test.medium, got, err, test.want)
		}
	}
}

func TestGroupModesGrantTheGroupAccess(t *testing.T) {
	for _, test := range []struct {
		mode     fs.FileMode
		readOnly bool
		want     fs.FileMode
	}{
		{0o600, false, 0o660},
		{0o600, true, 0o640},
		{0o400, true, 0o440},
		{0o755, true, 0o755},
		{0o700 | fs.ModeDir, false, 0o770 | fs.ModeDir | fs.ModeSetgid},
		{0o700 | fs.ModeDir, true, 0o750 | fs.ModeDir | fs.ModeSetgid},
		{0o755 | fs.ModeDir | fs.ModeSticky, false, 0o775 | fs.ModeDir | fs.ModeSticky | fs.ModeSetgid},
	} {
		if got := groupMode(test.mode, test.readOnly); got != test.want {
			t.Errorf("%v (read-only %v) becomes %v, want %v", test.mode, test.readOnly, got, test.want)
		}
	}
}

func TestTokensBelongToTheSingleUserOfAPod(t *testing.T) {
	as := func(user *int64, containers ...*int64) *corev1.Pod {
		pod := &corev1.Pod{}
		if user != nil {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: user}
		}
		for _, c := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsUser: c}})
		}
		return pod
	}
	one, two := ptr.To[int64](1), ptr.To[int64](2)
	for _, test := range []struct {
		name string
		pod  *corev1.Pod
		want *int64
	}{
		{"the pod's", as(one, nil, nil), one},
		{"all containers'", as(nil, two, two), two},
		{"containers' before the pod's", as(one, two), two},
		{"several", as(one, nil, two), nil},
		{"one that is not known", as(nil, one, nil), nil},
	} {
		if got := onlyUser(test.pod); !ptr.Equal(got, test.want) {
			t.Errorf("%s: %v", test.name, ptr.Deref(got, -1))
		}
	}
}

func TestMountPointsInsideOfVolumesAreFound(t *testing.T) {
	mounts := []corev1.VolumeMount{
		{Name: "v", MountPath: "/dir"}, {Name: "a", MountPath: "/dir/nested"}, {Name: "b", MountPath: "/dir/nested/deeper"},
		{Name: "c", MountPath: "/dir/nested-too/x/"}, {Name: "d", MountPath: "/directory"}, {Name: "e", MountPath: "/dir/../etc"},
		{Name: "v", MountPath: "relative"}, {Name: "f", MountPath: "/relative/y"},
	}
	want := []string{"nested", "nested-too/x", "y"}
	if got := nestedIn(mounts, "v"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := nestedIn(mounts, "a"); !slices.Equal(got, []string{"deeper"}) {
		t.Errorf("got %q", got)
	}
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	h := newFixture(t)
	for _, uid := range []string{"", ".", "..", "../../etc", "a/b"} {
		pod := podOf()
		pod.UID = types.UID(uid)
		if _, err := h.Mount(t.Context(), pod); err == nil {
			t.Errorf("uid %q is accepted", uid)
		}
		if err := h.Unmount(t.Context(), pod.UID); err == nil {
			t.Errorf("uid %q is unmounted", uid)
		}
		if _, err := h.TerminationLog(pod.UID, "c"); err == nil {
			t.Errorf("uid %q gets a termination log", uid)
		}
	}
	if _, err := h.Mount(t.Context(), podOf(volumeOf("../x", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))); err == nil {
		t.Error("a volume named ../x is taken")
	}
}
