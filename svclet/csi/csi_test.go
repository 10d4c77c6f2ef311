package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/svclet/csi/csitest"
)

const (
	stages  = spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
	expands = spec.NodeServiceCapability_RPC_EXPAND_VOLUME
	groups  = spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	stats   = spec.NodeServiceCapability_RPC_GET_VOLUME_STATS
	// conditions is that a driver knows whether volumes are healthy.
	conditions = spec.NodeServiceCapability_RPC_VOLUME_CONDITION
)

func TestADriverIsInTheCSINodeWhileItIsRegistered(t *testing.T) {
	f := newFixture(t)
	csiNode := func() []storagev1.CSINodeDriver {
		found := &storagev1.CSINode{}
		f.Expect(f.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, found)).To(gomega.Succeed())
		f.Expect(found.OwnerReferences).To(gomega.Equal([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n"}}))
		return found.Spec.Drivers
	}
	f.Expect(csiNode()).To(gomega.Equal([]storagev1.CSINodeDriver{
		{Name: driverName, NodeID: "hut-1", TopologyKeys: []string{"hut.example/zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](7)}},
	}))
	node := &corev1.Node{}
	f.Expect(f.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, node)).To(gomega.Succeed())
	f.Expect(node.Annotations).To(gomega.HaveKeyWithValue("csi.volume.kubernetes.io/nodeid", `{"hut.example":"hut-1"}`))
	f.Expect(node.Labels).To(gomega.HaveKeyWithValue("hut.example/zone", "a"))
	f.Eventually(f.driver.Registered).Should(gomega.HaveLen(1))
	f.Expect(f.driver.Registered()[0].GetPluginRegistered()).To(gomega.BeTrue())

	f.driver.Stop()
	f.Eventually(csiNode).Should(gomega.BeEmpty())
	_, err := f.Publish(t.Context(), persistent("u1"))
	f.Expect(err).To(gomega.MatchError("driver name hut.example not found in the list of registered CSI drivers"))

	f.driver, err = csitest.Start(csitest.Options{Name: driverName, NodeID: "hut-2", Registry: f.registry(), Dir: f.sockets})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Eventually(csiNode).Should(gomega.HaveExactElements(gomega.HaveField("NodeID", "hut-2")))
}

func TestAVolumeIsStagedForAllItsPodsAndPublishedForEach(t *testing.T) {
	f := newFixture(t, stages, stats)
	secret := &corev1.SecretReference{Namespace: "ns", Name: "key"}
	withSecrets := func(v *Volume) {
		v.PV.Spec.CSI.NodeStageSecretRef, v.PV.Spec.CSI.NodePublishSecretRef = secret, secret
	}
	first := f.publish(persistent("u1", withSecrets))
	f.Expect(first).To(gomega.Equal(Published{Path: filepath.Join(f.root, "pods/u1/volumes/kubernetes.io~csi/pv1/mount"), Measurable: true}))
	f.publish(persistent("u1", withSecrets))
	f.publish(persistent("u2", withSecrets))
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"stage h1", "publish h1", "publish h1"}))

	staged, published := f.driver.Staged()[0], f.driver.Published()[0]
	f.Expect(staged.GetStagingTargetPath()).To(gomega.MatchRegexp(`/plugins/kubernetes.io/csi/hut.example/[0-9a-f]{64}/globalmount$`))
	f.Expect(published.GetStagingTargetPath()).To(gomega.Equal(staged.GetStagingTargetPath()))
	f.Expect(published.GetTargetPath()).To(gomega.Equal(first.Path))
	f.Expect(staged.GetSecrets()).To(gomega.Equal(map[string]string{"k": "v"}))
	f.Expect(published.GetSecrets()).To(gomega.Equal(map[string]string{"k": "v"}))
	f.Expect(published.GetVolumeContext()).To(gomega.Equal(map[string]string{"color": "red"}))
	f.Expect(published.GetVolumeCapability().GetMount().GetFsType()).To(gomega.Equal("ext4"))
	f.Expect(published.GetVolumeCapability().GetMount().GetMountFlags()).To(gomega.Equal([]string{"noatime"}))
	f.Expect(published.GetVolumeCapability().GetAccessMode().GetMode()).To(gomega.Equal(spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER))

	f.Expect(f.Usage(t.Context(), "u1", "pv1")).To(gomega.Equal(Usage{Used: 400, Available: 600, Capacity: 1000, InodesUsed: 10, InodesFree: 90, InodeCount: 100}))
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(f.Unpublish(t.Context(), "u2")).To(gomega.Succeed())
	f.Expect(f.Unpublish(t.Context(), "u2")).To(gomega.Succeed())
	f.Expect(f.driver.Calls()[4:]).To(gomega.Equal([]string{"unpublish h1", "unpublish h1", "unstage h1"}))
	f.expectNothingLeft()
}

func TestNothingIsLeftOfACallThatFailed(t *testing.T) {
	for _, method := range []string{"stage", "publish"} {
		t.Run(method, func(t *testing.T) {
			f := newFixture(t, stages)
			f.driver.Fail(method, errors.New("the hut is closed"))
			_, err := f.Publish(t.Context(), persistent("u1"))
			f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("the hut is closed")))
			f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
			f.Expect(f.driver.Calls()).To(gomega.ContainElement("unstage h1"))
			f.expectNothingLeft()
		})
	}
}

func TestAFailedReleaseIsRepeatedAndLosesNothing(t *testing.T) {
	f := newFixture(t, stages)
	f.publish(persistent("u1"))
	for _, method := range []string{"unpublish", "unstage"} {
		f.driver.Fail(method, errors.New("busy"))
		f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.MatchError(gomega.ContainSubstring("busy")))
		f.driver.Fail(method, nil)
	}
	f.start()
	f.awaitDriver()
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.expectNothingLeft()
}

func TestARestartOfTheAgentKeepsVolumes(t *testing.T) {
	f := newFixture(t, stages)
	f.publish(persistent("u1"))
	before := f.driver.Calls()
	f.start()
	f.awaitDriver()
	f.publish(persistent("u1"))
	f.Expect(f.driver.Calls()).To(gomega.Equal(before))

	// After a reboot the mounts are gone.
	f.boot = "another boot"
	f.publish(persistent("u1"))
	f.Expect(f.driver.Calls()[len(before):]).To(gomega.Equal([]string{"stage h1", "publish h1"}))
}

func TestAVolumeWaitsUntilAControllerHasAttachedIt(t *testing.T) {
	f := newFixture(t)
	f.change(func(s *storagev1.CSIDriverSpec) { s.AttachRequired = nil })
	type result struct {
		Published
		error
	}
	done := make(chan result, 1)
	go func() {
		p, err := f.Publish(t.Context(), persistent("u1"))
		done <- result{p, err}
	}()
	const name = corev1.UniqueVolumeName("kubernetes.io/csi/hut.example^h1")
	f.Eventually(f.InUse).Should(gomega.Equal([]corev1.UniqueVolumeName{name}))
	r := record{Driver: driverName, Handle: "h1"}
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentName(r, "n1")},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/hut"}},
	}
	f.Expect(f.client.Create(t.Context(), attachment)).To(gomega.Succeed())
	f.mu.Lock()
	f.status.VolumesAttached = []corev1.AttachedVolume{{Name: name}}
	f.mu.Unlock()
	var got result
	f.Eventually(done).Should(gomega.Receive(&got))
	f.Expect(got.error).NotTo(gomega.HaveOccurred())
	f.Expect(f.driver.Published()[0].GetPublishContext()).To(gomega.Equal(map[string]string{"device": "/dev/hut"}))

	f.start()
	f.awaitDriver()
	f.Expect(f.InUse()).To(gomega.Equal([]corev1.UniqueVolumeName{name}), "after a restart")
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.expectNothingLeft()
}

func TestAVolumeThatIsNeverAttachedIsReleased(t *testing.T) {
	f := newFixture(t)
	f.change(func(s *storagev1.CSIDriverSpec) { s.AttachRequired = nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Publish(ctx, persistent("u1"))
		done <- err
	}()
	f.Eventually(f.InUse).Should(gomega.HaveLen(1))
	cancel()
	f.Eventually(done).Should(gomega.Receive(gomega.MatchError(gomega.ContainSubstring("to be attached"))))
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(f.driver.Calls()).To(gomega.BeEmpty())
	f.expectNothingLeft()
}

func TestAnInlineVolumeIsThePodsOwn(t *testing.T) {
	f := newFixture(t, stages)
	inline := Volume{Pod: podOf("u1"), Name: "scratch", Inline: &corev1.CSIVolumeSource{
		Driver: driverName, VolumeAttributes: map[string]string{"size": "1"}, NodePublishSecretRef: &corev1.LocalObjectReference{Name: "key"},
	}}
	_, err := f.Publish(t.Context(), inline)
	f.Expect(err).To(gomega.MatchError(`volume mode "Ephemeral" not supported by driver hut.example (only supports ["Persistent"])`))
	f.change(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes, s.PodInfoOnMount = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, ptr.To(true)
	})
	f.publish(inline)
	request := f.driver.Published()[0]
	f.Expect(request.GetVolumeId()).To(gomega.MatchRegexp("^csi-[0-9a-f]{64}$"))
	f.Expect(request.GetStagingTargetPath()).To(gomega.BeEmpty())
	f.Expect(request.GetSecrets()).To(gomega.HaveLen(1))
	f.Expect(request.GetVolumeContext()).To(gomega.Equal(map[string]string{
		"size": "1", "csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.name": "p-u1", "csi.storage.k8s.io/pod.namespace": "ns",
		"csi.storage.k8s.io/pod.uid": "u1", "csi.storage.k8s.io/serviceAccount.name": "default",
	}))
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.expectNothingLeft()
}

func TestTokensAreRepublishedIfTheDriverRequiresIt(t *testing.T) {
	f := newFixture(t, stages)
	f.change(func(s *storagev1.CSIDriverSpec) {
		s.TokenRequests, s.RequiresRepublish = []storagev1.TokenRequest{{Audience: "vault"}}, ptr.To(true)
	})
	f.publish(persistent("u1"))
	f.publish(persistent("u1"))
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"stage h1", "publish h1", "publish h1"}))
	f.Expect(f.driver.Published()[1].GetVolumeContext()).To(gomega.HaveKeyWithValue("csi.storage.k8s.io/serviceAccount.tokens", gomega.ContainSubstring(`{"vault":{"token":`)))
}

func TestAVolumeThatHasGrownIsExpanded(t *testing.T) {
	f := newFixture(t, expands)
	v := persistent("u1")
	v.Claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	f.Expect(f.client.Create(t.Context(), v.Claim)).To(gomega.Succeed())
	f.publish(v)
	f.Expect(f.driver.Expanded()).To(gomega.BeEmpty())
	v.PV.Spec.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
	f.publish(v)
	f.Expect(f.driver.Expanded()[0].GetCapacityRange().GetRequiredBytes()).To(gomega.Equal(int64(2 << 30)))
	claim := &corev1.PersistentVolumeClaim{}
	f.Expect(f.client.Get(t.Context(), client.ObjectKeyFromObject(v.Claim), claim)).To(gomega.Succeed())
	f.Expect(claim.Status.Capacity.Storage().String()).To(gomega.Equal("2Gi"))
	f.Expect(claim.Status.Conditions).To(gomega.BeEmpty())
}

func TestABlockVolumeIsPublishedAsADevice(t *testing.T) {
	f := newFixture(t, stages)
	f.Expect(os.MkdirAll(filepath.Join(f.sockets, "devices"), 0o755)).To(gomega.Succeed())
	f.Expect(os.Symlink("/dev/loop0", filepath.Join(f.sockets, "devices/h1"))).To(gomega.Succeed())
	v := persistent("u1", func(v *Volume) { v.Block = true })
	published := f.publish(v)
	f.Expect(published.Path).To(gomega.Equal(filepath.Join(f.root, "plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1")))
	f.Expect(published.Path).To(gomega.BeARegularFile())
	request := f.driver.Published()[0]
	f.Expect(request.GetTargetPath()).To(gomega.Equal(published.Path))
	f.Expect(request.GetVolumeCapability().GetBlock()).NotTo(gomega.BeNil())
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(f.driver.Calls()).To(gomega.Equal([]string{"stage h1", "publish h1", "unpublish h1", "unstage h1"}))
	f.expectNothingLeft()
}

func TestTheDriverOrTheAgentGivesFilesToTheFSGroup(t *testing.T) {
	policy := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &p}}
	}
	group := func(v *Volume) { v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](42)} }
	many := func(v *Volume) { v.PV.Spec.AccessModes[0] = corev1.ReadWriteMany }
	for name, c := range map[string]struct {
		object *storagev1.CSIDriver
		change []func(*Volume)
		want   bool
	}{
		"no group":               {policy(storagev1.FileFSGroupPolicy), nil, false},
		"File":                   {policy(storagev1.FileFSGroupPolicy), []func(*Volume){group, many}, true},
		"None":                   {policy(storagev1.NoneFSGroupPolicy), []func(*Volume){group}, false},
		"default, once":          {&storagev1.CSIDriver{}, []func(*Volume){group}, true},
		"default, many":          {&storagev1.CSIDriver{}, []func(*Volume){group, many}, false},
		"default without a type": {&storagev1.CSIDriver{}, []func(*Volume){group, func(v *Volume) { v.PV.Spec.CSI.FSType = "" }}, false},
		"read-only":              {policy(storagev1.FileFSGroupPolicy), []func(*Volume){group, func(v *Volume) { v.ReadOnly = true }}, false},
	} {
		if v := persistent("u1", c.change...); v.givesGroup(c.object) != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

func TestADriverThatMountsVolumesForAGroupIsToldItWhateverThePolicyIs(t *testing.T) {
	f := newFixture(t, stages, groups, expands)
	f.change(func(s *storagev1.CSIDriverSpec) { s.FSGroupPolicy = ptr.To(storagev1.NoneFSGroupPolicy) })
	group := func(v *Volume) {
		v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](42)}
		v.PV.Spec.AccessModes[0], v.PV.Spec.CSI.FSType = corev1.ReadWriteMany, "" // as of a share of files
	}
	f.publish(persistent("u1", group)) // Own, which is nil, is not called
	f.Expect(f.driver.Staged()[0].GetVolumeCapability().GetMount().GetVolumeMountGroup()).To(gomega.Equal("42"))
	f.Expect(f.driver.Published()[0].GetVolumeCapability().GetMount().GetVolumeMountGroup()).To(gomega.Equal("42"))
	expanded := persistent("u1", group, func(v *Volume) {
		v.PV.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	})
	f.Expect(f.client.Create(t.Context(), expanded.Claim)).To(gomega.Succeed())
	f.publish(expanded)
	f.Expect(f.driver.Expanded()[0].GetVolumeCapability().GetMount().GetVolumeMountGroup()).To(gomega.BeEmpty(), "as kubelet")
}

func TestOnlyThePodMakesAVolumeReadOnly(t *testing.T) {
	f := newFixture(t)
	f.publish(persistent("u1", func(v *Volume) { v.PV.Spec.CSI.ReadOnly = true }))
	f.publish(persistent("u2", func(v *Volume) { v.ReadOnly = true }))
	f.Expect(f.driver.Published()[0].GetReadonly()).To(gomega.BeFalse(), "that is for the controller")
	f.Expect(f.driver.Published()[1].GetReadonly()).To(gomega.BeTrue())
}

func TestAccessModesAreThoseThatTheDriverDistinguishes(t *testing.T) {
	for mode, want := range map[corev1.PersistentVolumeAccessMode][2]spec.VolumeCapability_AccessMode_Mode{
		corev1.ReadWriteOnce:    {spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		corev1.ReadWriteOncePod: {spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		corev1.ReadOnlyMany:     {spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		corev1.ReadWriteMany:    {spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		if got := [2]spec.VolumeCapability_AccessMode_Mode{driverMode(mode, false), driverMode(mode, true)}; got != want {
			t.Errorf("%s: %v", mode, got)
		}
	}
}

func TestTokensAreKeptUntilTheyAreToBeRenewed(t *testing.T) {
	requests, expires := 0, time.Time{}
	f := newFixture(t, stages)
	counted, ok := f.client.(client.WithWatch)
	f.Expect(ok).To(gomega.BeTrue())
	f.client = interceptor.NewClient(counted, interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _ client.Object, created client.Object, _ ...client.SubResourceCreateOption) error {
		requests++
		request, _ := created.(*authenticationv1.TokenRequest)
		request.Status = authenticationv1.TokenRequestStatus{Token: strconv.Itoa(requests), ExpirationTimestamp: metav1.NewTime(expires)}
		return nil
	}})
	f.start()
	f.awaitDriver()
	f.change(func(s *storagev1.CSIDriverSpec) {
		s.TokenRequests, s.RequiresRepublish = []storagev1.TokenRequest{{Audience: "vault"}}, ptr.To(true)
	})
	published := func(want string) {
		t.Helper()
		f.publish(persistent("u1"))
		all := f.driver.Published()
		f.Expect(all[len(all)-1].GetVolumeContext()).To(gomega.HaveKeyWithValue("csi.storage.k8s.io/serviceAccount.tokens", gomega.ContainSubstring(`"token":"`+want+`"`)))
	}
	expires = f.o.Clock.Now().Add(time.Hour)
	published("1")
	published("1")
	key := tokenKey{pod: "u1", account: "default", audience: "vault"}
	held, _ := f.tokens.get(key)
	if at := held.renew.Sub(expires); at > -12*time.Minute+time.Second || at < -12*time.Minute-time.Minute {
		t.Errorf("the token is renewed %s after its end", at)
	}
	held.renew = f.o.Clock.Now()
	f.tokens.set(key, held)
	published("2")
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	published("3")
}

func TestAVolumeStaysStagedOnlyWhileADamagedRecordMayBeOfIt(t *testing.T) {
	f := newFixture(t, stages)
	mounted := map[string]bool{}
	f.o.Mounted = func(path string) (bool, error) {
		_, err := os.Lstat(path)
		return mounted[path], err
	}
	other := func(uid types.UID, name, handle string) Volume {
		return persistent(uid, func(v *Volume) { v.PV.Name, v.PV.Spec.CSI.VolumeHandle = name, handle })
	}
	damage := func(uid types.UID, name string) string {
		dir := filepath.Join(f.layout.volumes(uid), name)
		f.Expect(os.MkdirAll(filepath.Join(dir, "mount"), 0o750)).To(gomega.Succeed())
		f.Expect(os.WriteFile(filepath.Join(dir, recordFile), []byte("{"), 0o600)).To(gomega.Succeed())
		return dir
	}
	f.publish(persistent("u1"))
	damage("u7", "unmounted")
	f.publish(other("u8", "pv2", "h2"))
	mounted[filepath.Join(damage("u8", "pv2"), "mount")] = true // of another handle, as its staged record says
	for _, name := range []string{persistent("u1").PV.Name, "alias"} {
		same := damage("u9", name)
		mounted[filepath.Join(same, "mount")] = true
		f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.MatchError(gomega.ContainSubstring(same + "/vol_data.json is damaged")))
		f.Expect(f.driver.Calls()).NotTo(gomega.ContainElement("unstage h1"))
		f.Expect(os.RemoveAll(same)).To(gomega.Succeed())
	}
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(f.driver.Calls()).To(gomega.ContainElement("unstage h1"))
	f.Expect(f.driver.Calls()).NotTo(gomega.ContainElement("unstage h2"))
}

func TestADamagedRecordOfAnInlineVolumeKeepsNoVolumeStaged(t *testing.T) {
	f := newFixture(t, stages)
	f.o.Mounted = func(path string) (bool, error) {
		_, err := os.Lstat(path)
		return strings.HasPrefix(path, f.layout.volumes("u2")), err
	}
	f.change(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}
	})
	f.publish(persistent("u1"))
	// Its name in the pod is that of the PersistentVolume.
	inline := Volume{Pod: podOf("u2"), Name: persistent("u1").PV.Name, Inline: &corev1.CSIVolumeSource{Driver: driverName}}
	f.publish(inline)
	path := filepath.Join(f.layout.volumes("u2"), inline.Name, recordFile)
	f.Expect(os.WriteFile(path, []byte("{"), 0o600)).To(gomega.Succeed())

	// An agent that has restarted knows it when it has set up the pod.
	f.forgetInline("u2")
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.MatchError(gomega.ContainSubstring("is damaged")))
	_, err := f.Publish(t.Context(), inline)
	f.Expect(err).To(gomega.MatchError(gomega.ContainSubstring("is damaged")))
	f.Expect(f.Unpublish(t.Context(), "u1")).To(gomega.Succeed())
	f.Expect(f.driver.Calls()).To(gomega.ContainElement("unstage h1"))
}

func TestAVolumeThatIsMountedWithAnSELinuxLabelIsLabelled(t *testing.T) {
	v := persistent("u1")
	v.PV.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}
	object := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{SELinuxMount: ptr.To(true)}}
	if options, labelled := v.mountOptions(object, true); !labelled || !slices.Contains(options, `context="system_u:object_r:container_file_t:s0:c1,c2"`) {
		t.Errorf("options %q, labelled: %t", options, labelled)
	}
	if options, labelled := v.mountOptions(object, false); labelled {
		t.Errorf("on a host without SELinux it is labelled, with options %q", options)
	}
}
