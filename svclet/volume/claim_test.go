package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"svc.dev/svc/apis/localpath"
)

// provisioned adds a claim that is bound to a volume of the provisioner svc.dev/local-path on the
// node, and returns a volume of a pod.
func (h *fixture) provisioned(name, node string) corev1.Volume {
	v := h.claimed(name, corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(h.LocalDir, "pv-"+name)}})
	pv := h.objects.volumes["pv-"+name]
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": localpath.Provisioner}
	pv.Labels = map[string]string{localpath.NodeLabel: node}
	pv.Spec.NodeAffinity = affinityFor(node)
	return v
}

// affinityFor returns the affinity of a volume that is on the node with this host name only.
func affinityFor(hostname string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{hostname}}},
	}}}}
}

// onNode sets the name, the labels and the directory of local volumes of the fixture's node.
func (h *fixture) onNode(t *testing.T, name string) {
	h.NodeName, h.LocalDir = name, filepath.Join(t.TempDir(), "local-volumes")
	h.NodeLabels = func() map[string]string { return map[string]string{corev1.LabelHostname: name} }
}

func TestTheVolumeOfAnotherNodeIsNotMounted(t *testing.T) {
	h := newFixture(t)
	h.onNode(t, "b")
	_, err := h.Mount(t.Context(), podOf(h.provisioned("data", "a")))
	if want := `MountVolume.NodeAffinity check failed for volume "data" : no matching NodeSelectorTerms`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var one *Error
	if !errors.As(err, &one) || one.Volume != "data" {
		t.Error("the error does not name the volume")
	}
	if _, err := os.Stat(h.LocalDir); !errors.Is(err, fs.ErrNotExist) || len(h.mounter.mounts) > 0 {
		t.Errorf("made %v, mounted %v", err, h.mounter.mounts)
	}
}

func TestOnlyTheNodeOfAProvisionedVolumeMakesItsDirectory(t *testing.T) {
	h := newFixture(t)
	h.onNode(t, "b")
	moved := h.provisioned("data", "a")
	h.objects.volumes["pv-data"].Spec.NodeAffinity = affinityFor("b")
	if _, err := h.Mount(t.Context(), podOf(moved)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("mounted a volume of another node: %v", err)
	}
	mounted, err := h.Mount(t.Context(), podOf(h.provisioned("own", "b")))
	if err != nil || mounted["own"].HostPath == "" {
		t.Errorf("mounted %v, %v", mounted, err)
	}
}

func TestTheNodeAffinityOfAVolumeIsCheckedWhenItIsFirstMounted(t *testing.T) {
	h := newFixture(t)
	h.onNode(t, "a")
	pod := podOf(h.provisioned("data", "a"))
	if _, err := h.Mount(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	h.NodeLabels = func() map[string]string { return nil }
	if _, err := h.Mount(t.Context(), pod); err != nil {
		t.Errorf("a volume that is mounted: %v", err)
	}
	h.objects.volumes["pv-data"].ObjectMeta = metav1.ObjectMeta{Name: "pv-data"}
	second := podOf(pod.Spec.Volumes...)
	second.UID = "u2"
	if _, err := h.Mount(t.Context(), second); err == nil {
		t.Error("mounted for another pod")
	}
}

func TestTheVolumesOfAPodThatRanBeforeARestartAreNotCheckedAgain(t *testing.T) {
	for name, claim := range map[string]func(*fixture) corev1.Volume{
		"affinity": func(h *fixture) corev1.Volume { return h.provisioned("data", "a") },
		"options": func(h *fixture) corev1.Volume {
			return h.mountOptionsClaim(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}, "").Spec.Volumes[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t)
			h.onNode(t, "a")
			pod := podOf(claim(h))
			h.NodeLabels = nil
			for range 2 {
				if _, err := h.Mount(t.Context(), pod); err == nil {
					t.Error("mounted for a pod that has no container yet")
				}
				h.Manager.pods = map[types.UID]*state{}
			}
			if _, err := h.TerminationLog(pod.UID, "main"); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Mount(t.Context(), pod); err != nil {
				t.Error(err)
			}
			h.Manager.pods = map[types.UID]*state{}
			pod.Spec.Containers[0].VolumeMounts = nil
			more, err := h.MountMore(t.Context(), pod, sets.New("data"))
			if err == nil {
				t.Errorf("mounted %v for an ephemeral container", more)
			}
		})
	}
}

func TestAnEphemeralContainerThatMountsADeviceOfThePodFailsAlone(t *testing.T) {
	h := newFixture(t)
	pod := podOf(h.claimed("data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}))
	h.CSI = &recordingCSI{}
	h.objects.volumes["pv-data"].Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	main := &pod.Spec.Containers[0]
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: main.VolumeMounts}}
	main.VolumeMounts, main.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
	mounted, err := h.Mount(t.Context(), pod)
	if _, found := mounted["data"]; err != nil || !found {
		t.Errorf("mounted %v, %v", mounted, err)
	}
}

func TestALocalVolumeForOnePodIsMountedForAnotherOneWhenTheFirstHasReleasedIt(t *testing.T) {
	h := newFixture(t)
	volume := h.claimed("data", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: t.TempDir()}})
	h.checkSole(t, podOf(volume))
}

// checkSole checks that a pod whose only volume is PersistentVolume pv-data has it alone while it is
// for one pod.
func (h *fixture) checkSole(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	spec := &h.objects.volumes["pv-data"].Spec
	spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	mount := func(uid types.UID, allowed bool, when string) {
		t.Helper()
		other := pod.DeepCopy()
		other.UID = uid
		_, err := h.Mount(t.Context(), other)
		if want := `MountVolume.SetUp failed for volume "data" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`; allowed != (err == nil) || err != nil && err.Error() != want {
			t.Errorf("%s, %s: %v", uid, when, err)
		}
	}
	mount("u1", true, "the first")
	mount("u2", false, "the second")
	mount("u1", true, "the first again")
	h.Manager.pods = map[types.UID]*state{}
	mount("u2", false, "the second after a restart of the agent")
	mount("u1", true, "the first after a restart of the agent")
	if err := h.Unmount(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	mount("u2", true, "the second when the first has released it")
	spec.AccessModes = append(spec.AccessModes, corev1.ReadWriteOnce)
	mount("u1", true, "with another access mode")
}
