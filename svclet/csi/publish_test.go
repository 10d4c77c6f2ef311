package csi

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/csi/csitest"
)

func TestFilesAreGivenToTheFSGroupOnceUntilThatHasSucceeded(t *testing.T) {
	f := newFixture(t, stages)
	owned, failure := 0, errors.New("the disk is full")
	grouped := func(v *Volume) {
		v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](42)}
		v.Own = func(dir string) error {
			owned++
			f.Expect(dir).To(gomega.Equal(f.layout.target("u1", v.record())))
			return failure
		}
	}
	_, err := f.Publish(t.Context(), persistent("u1", grouped))
	f.Expect(err).To(gomega.MatchError(failure))

	// As after a crash of the agent meanwhile.
	failure = nil
	f.start()
	f.awaitDriver()
	f.publish(persistent("u1", grouped))
	f.Expect(owned).To(gomega.Equal(2))
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"stage h1", "publish h1", "publish h1"}))

	f.publish(persistent("u1", grouped))
	f.start()
	f.awaitDriver()
	f.publish(persistent("u1", grouped))
	f.change(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = ptr.To(true) })
	f.publish(persistent("u1", grouped))
	f.Expect(f.driver.Calls()).To(gomega.HaveLen(4))
	f.Expect(owned).To(gomega.Equal(2), "of a volume that a pod uses")

	f.boot = "another boot"
	f.publish(persistent("u1", grouped))
	f.Expect(owned).To(gomega.Equal(3), "after a reboot")
}

func TestAVolumeForOnePodIsPublishedForAnotherOneWhenTheFirstHasReleasedIt(t *testing.T) {
	f := newFixture(t, stages)
	modes := func(modes ...corev1.PersistentVolumeAccessMode) func(*Volume) {
		return func(v *Volume) { v.PV.Spec.AccessModes = modes }
	}
	sole := modes(corev1.ReadWriteOncePod)
	f.driver.Fail("publish", errors.New("the hut is closed"))
	_, err := f.Publish(t.Context(), persistent("u1", sole))
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("the hut is closed")))
	f.driver.Fail("publish", nil)

	inUse := gomega.MatchError("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	_, err = f.Publish(t.Context(), persistent("u2", sole))
	f.Expect(err).To(inUse, "the driver may have published it for the first")
	f.publish(persistent("u1", sole))
	f.start()
	f.awaitDriver()
	_, err = f.Publish(t.Context(), persistent("u2", sole))
	f.Expect(err).To(inUse, "after a restart of the agent")
	f.publish(persistent("u1", sole))
	f.driver.Fail("unpublish", errors.New("busy"))
	f.Expect(f.Unpublish(t.Context(), "u1")).NotTo(gomega.Succeed())
	f.driver.Fail("unpublish", nil)
	_, err = f.Publish(t.Context(), persistent("u2", sole))
	f.Expect(err).To(inUse, "while the first ends")

	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.publish(persistent("u2", sole))
	f.publish(persistent("u1", modes(corev1.ReadWriteOncePod, corev1.ReadWriteOnce)))
}

// TestAPublishedVolumeIsNotEntered: its file system may not respond, which must not keep the volume
// from being unpublished.
func TestAPublishedVolumeIsNotEntered(t *testing.T) {
	f := newFixture(t)
	target := f.publish(persistent("u1")).Path
	f.Expect(os.Remove(target)).To(gomega.Succeed()) // nothing but the table of mounts has it now
	mounted := true
	f.o.Mounted = func(string) (bool, error) { return mounted, nil }
	f.publish(persistent("u1"))
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"publish h1"}))

	f.driver.Stop()
	var err error
	f.driver, err = csitest.Start(csitest.Options{
		Name: driverName, NodeID: "hut-1", Registry: f.registry(), Dir: f.sockets,
		Mount: func(_, _ string) error { return nil }, Unmount: func(string) error { mounted = false; return nil },
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Eventually(f.driver.Registered).Should(gomega.HaveLen(1))
	f.change(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = ptr.To(true) })
	f.publish(persistent("u1"))
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"publish h1"}))

	f.o.Mounted = func(string) (bool, error) { return false, fs.ErrNotExist }
	_, err = f.Publish(t.Context(), persistent("u1"))
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("has published nothing")))
}

func TestAPublishedVolumeNeedsItsDriverOnlyIfItHasSomethingToDo(t *testing.T) {
	f := newFixture(t, stats, expands)
	first := f.publish(persistent("u1"))
	f.driver.Stop()
	f.start() // the driver has not registered with this agent
	f.Expect(f.publish(persistent("u1"))).To(gomega.Equal(first))

	away := gomega.MatchError("driver name hut.example not found in the list of registered CSI drivers")
	_, err := f.Publish(t.Context(), persistent("u2"))
	f.Expect(err).To(away, "another pod")
	_, err = f.Publish(t.Context(), persistent("u1", func(v *Volume) {
		v.PV.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	}))
	f.Expect(err).To(away, "an expanded volume")
	f.change(func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = ptr.To(true) })
	_, err = f.Publish(t.Context(), persistent("u1"))
	f.Expect(err).To(away, "a driver that requires to be called again")
}

func TestTokensAreSecretsIfTheDriverRequiresIt(t *testing.T) {
	f := newFixture(t)
	f.change(func(s *storagev1.CSIDriverSpec) {
		s.TokenRequests, s.ServiceAccountTokenInSecrets = []storagev1.TokenRequest{{Audience: "vault"}}, ptr.To(true)
	})
	f.publish(persistent("u1"))
	f.publish(persistent("u2", func(v *Volume) {
		v.PV.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "ns", Name: "key"}
	}))
	tokens := gomega.HaveKeyWithValue("csi.storage.k8s.io/serviceAccount.tokens", gomega.ContainSubstring(`{"vault":{"token":`))
	for _, request := range f.driver.Published() {
		f.Expect(request.GetSecrets()).To(tokens)
		f.Expect(request.GetVolumeContext()).To(gomega.Equal(map[string]string{"color": "red"}))
	}
	f.Expect(f.driver.Published()[1].GetSecrets()).To(gomega.HaveKeyWithValue("k", "v"))
}
