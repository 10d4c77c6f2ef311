package controllers

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("protection of volumes", func() {
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

	It("keeps a claim while a pod uses it, also when the manager is killed", func(ctx SpecContext) {
		ns := newNamespace(ctx)
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: storage},
			},
		}
		Expect(client.Create(ctx, claim)).To(Succeed())
		Expect(claim.Finalizers).To(ConsistOf("kubernetes.io/pvc-protection"), "by admission, before the controller has seen the claim")
		// No agent is simulated for this node: the pod stays as it is.
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "user"},
			Spec: corev1.PodSpec{
				NodeName:   "nowhere",
				Containers: []corev1.Container{{Name: "app", Image: "app"}},
				Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				}}},
			},
		}
		Expect(client.Create(ctx, pod)).To(Succeed())
		run(ctx, "-n", ns, "delete", "pvc", "data", "--wait=false")
		killManager(ctx)
		startManager(ctx)
		Consistently(finalizers(ctx, claim)).Should(ConsistOf("kubernetes.io/pvc-protection"))
		Expect(client.Delete(ctx, pod, ctrlclient.GracePeriodSeconds(0))).To(Succeed())
		eventuallyGone(ctx, claim)
	})

	It("keeps a volume while it is bound", func(ctx SpecContext) {
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "volume-"},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:               storage,
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			},
		}
		Expect(client.Create(ctx, volume)).To(Succeed())
		Eventually(finalizers(ctx, volume)).Should(ConsistOf("kubernetes.io/pv-protection"))
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: volume.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: storage},
				StorageClassName: new(string), VolumeName: volume.Name,
			},
		}
		Expect(client.Create(ctx, claim)).To(Succeed())
		Eventually(func() (corev1.PersistentVolumePhase, error) {
			err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(volume), volume)
			return volume.Status.Phase, err
		}).Should(Equal(corev1.VolumeBound))
		run(ctx, "delete", "pv", volume.Name, "--wait=false")
		Consistently(finalizers(ctx, volume)).Should(ConsistOf("kubernetes.io/pv-protection"))
		Expect(client.Delete(ctx, claim)).To(Succeed())
		eventuallyGone(ctx, volume)
	})
})

// finalizers reads the finalizers of an object.
func finalizers(ctx SpecContext, obj ctrlclient.Object) func() ([]string, error) {
	return func() ([]string, error) {
		err := client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)
		return obj.GetFinalizers(), err
	}
}
