package executor

import (
	"errors"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/runtime"
)

// mountsImage adds a volume of an image, of which the container mounts a part.
func mountsImage(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "model", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: "model:1", PullPolicy: corev1.PullIfNotPresent},
	}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "model", MountPath: "/model", SubPath: "weights"}}
}

func TestImagesArePulledAndMountedReadOnly(t *testing.T) {
	r := newFixture(t, mountsImage)
	id := r.running()
	response, err := r.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	status := response.GetStatus()
	mount := status.Mounts[0]
	r.Expect(mount.HostPath).To(gomega.BeEmpty())
	r.Expect(mount.Image.Image).To(gomega.HavePrefix("sha256:"))
	r.Expect(mount.Image.UserSpecifiedImage).To(gomega.Equal("model:1"))
	r.Expect(mount.ImageSubPath).To(gomega.Equal("weights"))
	r.Expect(mount.Readonly).To(gomega.BeTrue())
	r.Expect(status.Annotations).To(gomega.HaveKeyWithValue(runtime.ImagesAnnotation, mount.Image.Image))
	r.Expect(r.fakes.mounted).To(gomega.Equal(1))
}

func TestAContainerWhoseImageVolumeCannotBePulledWaitsWithTheReasonOfThePull(t *testing.T) {
	r := newFixture(t, mountsImage)
	r.runtime.FailPulls("model:1", errors.New("the registry is closed"))
	result := r.perform(t.Context(), r.startOf("app"))
	r.Expect(result.Reason).To(gomega.Equal("ErrImagePull"))
	r.Expect(result.Message).To(gomega.ContainSubstring("the registry is closed"))
	r.Expect(r.events).To(gomega.ContainElement(gomega.And(
		gomega.HaveField("Reason", "Failed"), gomega.HaveField("Message", "Error: ErrImagePull"), gomega.HaveField("Container", "app"))))
	r.Expect(r.observed().Containers).To(gomega.BeEmpty())

	r.runtime.FailPulls("model:1", nil)
	r.succeed(pod.Operation{Kind: pod.StartContainer, Name: "app", SandboxID: r.observed().Sandboxes[0].ID})
}
