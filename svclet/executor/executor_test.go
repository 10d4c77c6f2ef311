package executor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/csi"
	"svc.dev/svc/svclet/pod"
	"svc.dev/svc/svclet/probe"
	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/svclet/volume"
	"svc.dev/svc/svclet/volumeexpansion"
)

func TestAPodIsSetUpStartedStoppedAndTornDown(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
	id := r.running()
	sandbox := r.observed().Sandboxes[0].ID
	r.Expect(r.SetUpPods()).To(gomega.Equal(1))
	r.Expect(r.cgroups).To(gomega.HaveKey(r.pod.UID))
	r.Expect(r.registered).To(gomega.Equal([]types.UID{"u"}))
	r.Expect(r.reasons()).To(gomega.ContainElements("Created", "Started"))
	r.Expect(r.started).To(gomega.Equal([]string{""}))
	logDirectory := filepath.Join(r.dir, "logs", "ns_p_u", "app")
	r.Expect(logDirectory).To(gomega.BeADirectory())
	links, err := os.ReadDir(filepath.Join(r.dir, "links"))
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(links).To(gomega.HaveLen(1))

	r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app", Grace: 30 * time.Second})
	r.Expect(r.observed().Containers[0].State).To(gomega.Equal(pod.Exited))
	r.succeed(pod.Operation{Kind: pod.RemoveContainer, ID: id, Name: "app"})
	r.Expect(r.observed().Containers).To(gomega.BeEmpty())
	r.succeed(pod.Operation{Kind: pod.StopSandbox, ID: sandbox})
	r.Expect(r.observed().Sandboxes[0].Ready).To(gomega.BeFalse())
	r.succeed(pod.Operation{Kind: pod.RemoveSandbox, ID: sandbox})
	r.Expect(r.runtime.Pods()).To(gomega.BeEmpty())
	r.succeed(pod.Operation{Kind: pod.TearDown})
	r.Expect(r.SetUpPods()).To(gomega.BeZero())
	r.Expect(r.cgroups).To(gomega.BeEmpty())
	r.Expect(r.unregistered).To(gomega.Equal([]types.UID{"u"}))
	r.Expect(filepath.Join(r.dir, "root", "pods", "u")).NotTo(gomega.BeADirectory())
}

func TestAPodWhoseDirectoryIsGoneIsSetUpAgain(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
	id := r.running()
	sandbox := r.observed().Sandboxes[0].ID
	r.Expect(os.RemoveAll(filepath.Join(r.dir, "root", "pods", "u"))).To(gomega.Succeed())
	r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app"})
	r.succeed(pod.Operation{Kind: pod.StartContainer, Name: "app", SandboxID: sandbox, Attempt: 1})
	r.Expect(filepath.Join(r.dir, "root", "pods", "u", "volumes", "kubernetes.io~empty-dir", "v")).To(gomega.BeADirectory())
}

func TestNothingIsStartedBeforeThePodIsSetUp(t *testing.T) {
	r := newFixture(t)
	for kind, reason := range map[pod.Kind]string{pod.CreateSandbox: "FailedCreatePodSandBox", pod.StartContainer: "CreateContainerConfigError"} {
		r.Expect(r.perform(t.Context(), pod.Operation{Kind: kind, Name: "app"})).To(gomega.And(
			gomega.HaveField("Reason", reason), gomega.HaveField("Message", gomega.ContainSubstring("the pod has not been set up"))))
	}
	r.Expect(r.runtime.Pods()).To(gomega.BeEmpty())
}

func TestAFailedSetUpIsReportedWithItsReasonAndCanBeRetried(t *testing.T) {
	for name, test := range map[string]struct {
		fail, heal      func(*fixture)
		reason, message string
	}{
		"cgroup": {
			fail:   func(r *fixture) { r.createCgroup = errors.New("no space") },
			heal:   func(r *fixture) { r.createCgroup = nil },
			reason: "FailedCreatePodContainer", message: "unable to ensure pod container exists: no space",
		},
		"volume": {
			fail: func(r *fixture) {
				r.pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
				r.pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
			},
			heal:   func(r *fixture) { r.pod.Spec.Volumes, r.pod.Spec.Containers[0].VolumeMounts = nil, nil },
			reason: "FailedMount", message: `"v"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			test.fail(r)
			result := r.perform(t.Context(), pod.Operation{Kind: pod.SetUp})
			r.Expect(result.Reason).To(gomega.Equal(test.reason))
			r.Expect(result.Message).To(gomega.ContainSubstring(test.message))
			r.Expect(r.SetUpPods()).To(gomega.BeZero())
			test.heal(r)
			r.succeed(pod.Operation{Kind: pod.SetUp})
			r.Expect(r.SetUpPods()).To(gomega.Equal(1))
		})
	}
}

func TestAFailedTearDownKeepsWhatThePodHas(t *testing.T) {
	r := newFixture(t)
	r.succeed(pod.Operation{Kind: pod.SetUp})
	r.removeCgroup = errors.New("device or resource busy")
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.TearDown})).To(gomega.Equal(pod.Result{Reason: "FailedKillPod", Message: "device or resource busy"}))
	r.Expect(r.SetUpPods()).To(gomega.Equal(1))
	r.Expect(r.unregistered).To(gomega.BeEmpty())
	r.removeCgroup = nil
	r.succeed(pod.Operation{Kind: pod.TearDown})
	r.Expect(r.SetUpPods()).To(gomega.BeZero())
}

func TestARuntimeClassNamesTheHandlerOfTheSandbox(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("sandboxed") })
	var handler string
	r.runtime.Rule("RunPodSandbox", runtimetest.Rule{Match: func(m proto.Message) bool {
		handler = m.(*runtimeapi.RunPodSandboxRequest).GetRuntimeHandler()
		return false
	}})
	r.sandbox()
	r.Expect(handler).To(gomega.Equal("gvisor"))
	r.pod.Spec.RuntimeClassName = ptr.To("absent")
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.CreateSandbox, Attempt: 1})).To(gomega.Equal(pod.Result{
		Reason: "FailedCreatePodSandBox", Message: "failed to get sandbox runtime: no such runtime class",
	}))
}

func TestAFailedStartIsReportedWithItsReason(t *testing.T) {
	for name, test := range map[string]struct {
		prepare         func(*fixture)
		container       string
		reason, message string
		event           bool // an event "Failed" is recorded
	}{
		"no such container": {container: "other", reason: "CreateContainerConfigError", message: `no container "other"`},
		"pull": {
			prepare: func(r *fixture) {
				r.pod.Spec.Containers[0].Image = "away:1"
				r.runtime.FailPulls("away:1", errors.New("the registry is closed"))
			},
			reason: "ErrImagePull", message: "the registry is closed", event: true,
		},
		"configuration": {
			prepare: func(r *fixture) {
				r.pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
			},
			reason: "CreateContainerConfigError", event: true,
		},
		"create": {
			prepare: func(r *fixture) { r.runtime.Rule("CreateContainer", runtimetest.Rule{Err: errors.New("no space")}) },
			reason:  "CreateContainerError", message: "no space", event: true,
		},
		"start": {
			prepare: func(r *fixture) {
				r.runtime.Rule("StartContainer", runtimetest.Rule{Err: errors.New("no such program")})
			},
			reason: "RunContainerError", message: "no such program", event: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			if test.prepare != nil {
				test.prepare(r)
			}
			if test.container == "" {
				test.container = "app"
			}
			result := r.perform(t.Context(), r.startOf(test.container))
			r.Expect(result.Reason).To(gomega.Equal(test.reason))
			r.Expect(result.Message).To(gomega.ContainSubstring(test.message))
			r.Expect(slices.Contains(r.reasons(), "Failed")).To(gomega.Equal(test.event))
			r.Expect(r.reasons()).NotTo(gomega.ContainElement("Started"))
		})
	}
}

func TestACancelledStartEndsWithoutAnEvent(t *testing.T) {
	r := newFixture(t)
	r.runtime.Rule("CreateContainer", runtimetest.Rule{Hang: true})
	start := r.startOf("app")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan pod.Result)
	go func() { result <- r.Perform(ctx, r.pod, pod.Observed{}, start, func(time.Duration) {}) }()
	r.Eventually(func() int { return r.runtime.Calls("CreateContainer") }, time.Minute).Should(gomega.Equal(1))
	cancel()
	r.Expect((<-result).Reason).To(gomega.Equal("CreateContainerError"))
	r.Expect(r.reasons()).NotTo(gomega.ContainElement("Failed"))
}

func TestAContainerWhosePostStartHookFailsIsStoppedWithItsPreStopHook(t *testing.T) {
	r := newFixture(t, withHooks)
	r.hook = func(_ context.Context, kind probe.HookKind) error {
		if kind == probe.PostStart {
			return errors.New("exit code 1")
		}
		return nil
	}
	result := r.perform(t.Context(), r.startOf("app"))
	r.Expect(result).To(gomega.Equal(pod.Result{Reason: "PostStartHookError", Message: "exit code 1"}))
	r.Expect(r.hooks).To(gomega.Equal([]probe.HookKind{probe.PostStart, probe.PreStop}))
	r.Expect(r.observed().Containers[0].State).To(gomega.Equal(pod.Exited))
	r.Expect(r.reasons()).To(gomega.ContainElement("Killing"))
}

func TestAStartThatIsCancelledDuringItsPostStartHookLeavesTheContainerRunning(t *testing.T) {
	r := newFixture(t, withHooks)
	start := r.startOf("app")
	ctx, cancel := context.WithCancel(t.Context())
	r.hook = func(ctx context.Context, _ probe.HookKind) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	r.Expect(r.perform(ctx, start).Reason).To(gomega.Equal("PostStartHookError"))
	r.Expect(r.observed().Containers[0].State).To(gomega.Equal(pod.Running))
	r.Expect(r.hooks).To(gomega.Equal([]probe.HookKind{probe.PostStart}))
}

// graces records the grace periods, in seconds, of the containers that the runtime
// is asked to stop.
func (r *fixture) graces() func() []int64 {
	var mu sync.Mutex
	var all []int64
	r.runtime.Rule("StopContainer", runtimetest.Rule{Match: func(m proto.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m.(*runtimeapi.StopContainerRequest).GetTimeout())
		return false
	}})
	return func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestAPreStopHookUsesUpTheGracePeriodButForTwoSeconds(t *testing.T) {
	for took, want := range map[time.Duration]int64{0: 30, 10 * time.Second: 20, 29 * time.Second: 2, time.Minute: 2} {
		t.Run(took.String(), func(t *testing.T) {
			r := newFixture(t, withHooks)
			id := r.running()
			graces := r.graces()
			r.hook = func(context.Context, probe.HookKind) error {
				r.clock.Step(took)
				return errors.New("a hook that fails does not keep the container running")
			}
			r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app", Grace: 30 * time.Second, Hook: true})
			r.Expect(graces()).To(gomega.Equal([]int64{want}))
		})
	}
}

func TestAStopWithoutAHookRunsNone(t *testing.T) {
	r := newFixture(t, withHooks)
	id := r.running()
	r.hooks = nil
	r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app", Grace: 30 * time.Second})
	r.Expect(r.hooks).To(gomega.BeEmpty())
}

func TestAContainerThatIsKilledHasNoGracePeriod(t *testing.T) {
	r := newFixture(t, withHooks)
	id := r.running()
	graces := r.graces()
	r.hooks = nil
	r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app", Kill: true})
	r.Expect(graces()).To(gomega.Equal([]int64{0}))
	r.Expect(r.hooks).To(gomega.BeEmpty())
}

func TestARemovedContainersLogStaysIfItIsToBeKept(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := newFixture(t)
		id := r.running()
		log := Log(r.Executor.o.Containers, r.pod, "app", id, 0).Path
		r.Expect(os.WriteFile(log, []byte("text"), 0o600)).To(gomega.Succeed())
		r.succeed(pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app"})
		r.succeed(pod.Operation{Kind: pod.RemoveContainer, ID: id, Name: "app", KeepLog: keep})
		_, err := os.Stat(log)
		r.Expect(err == nil).To(gomega.Equal(keep), "%v", err)
	}
}

func TestAStopThatIsCancelledDuringItsHookDoesNotStopTheContainer(t *testing.T) {
	r := newFixture(t, withHooks)
	id := r.running()
	ctx, cancel := context.WithCancel(t.Context())
	r.hook = func(ctx context.Context, _ probe.HookKind) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	result := r.perform(ctx, pod.Operation{Kind: pod.StopContainer, ID: id, Name: "app", Grace: 30 * time.Second, Hook: true})
	r.Expect(result.Reason).To(gomega.Equal("FailedKillPod"))
	r.Expect(r.runtime.Calls("StopContainer")).To(gomega.BeZero())
}

func TestThePreStopHookOfAnOrphanedPodIsTheRecordedOne(t *testing.T) {
	r := newFixture(t, withHooks)
	id := r.running()
	r.hooks = nil
	r.pod.Spec = corev1.PodSpec{} // Only the runtime knows the pod.
	r.succeed(pod.Operation{Kind: pod.PreStop, ID: id, Name: "app", Grace: 30 * time.Second})
	r.Expect(r.hooks).To(gomega.Equal([]probe.HookKind{probe.PreStop}))
	r.Expect(r.observed().Containers[0].State).To(gomega.Equal(pod.Running))
}

func TestARefreshBeforeTheSetUpDoesNothing(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: ptr.To(true)}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
	r.Refresh(t.Context(), r.pod)
	r.Expect(r.reasons()).To(gomega.BeEmpty())
	r.Expect(filepath.Join(r.dir, "root", "pods", "u")).NotTo(gomega.BeADirectory())
}

func TestAFailedRefreshIsAnEventUnlessItWasCancelled(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	})
	r.configMap = &corev1.ConfigMap{}
	r.succeed(pod.Operation{Kind: pod.SetUp})
	r.configMap = nil
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	r.Refresh(cancelled, r.pod)
	r.Expect(r.reasons()).To(gomega.BeEmpty())
	r.Refresh(t.Context(), r.pod)
	r.Expect(r.reasons()).To(gomega.Equal([]string{"FailedMount"}))
}

func TestAnExpansionThatFailedInUseIsNoFailedMount(t *testing.T) {
	failure := errors.Join(&volume.Error{Volume: "v", Err: &volumeexpansion.Error{Volume: "pv1", Err: errors.New("full")}})
	gomega.NewWithT(t).Expect(refreshReason(failure)).To(gomega.Equal("VolumeResizeFailed"))
}

// TestAnEphemeralContainerGetsVolumesThatNoOtherContainerUses, and waits for those that fail.
func TestAnEphemeralContainerGetsVolumesThatNoOtherContainerUses(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "missing", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "missing"}}},
		}
	})
	r.running()
	debug := func(volume string) pod.Result {
		container := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug-" + volume, Image: "app:1", VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/v"}},
		}}
		r.pod = r.pod.DeepCopy()
		r.pod.Spec.EphemeralContainers = append(r.pod.Spec.EphemeralContainers, container)
		return r.perform(t.Context(), pod.Operation{Kind: pod.StartContainer, Name: container.Name, SandboxID: r.observed().Sandboxes[0].ID})
	}
	result := debug("missing")
	r.Expect(result.Reason).To(gomega.Equal("CreateContainerConfigError"), "it is tried again when an object changes")
	r.Expect(result.Message).To(gomega.ContainSubstring(`MountVolume.SetUp failed for volume "missing"`))
	r.Expect(r.events).To(gomega.ContainElement(gomega.And(gomega.HaveField("Reason", "FailedMount"), gomega.HaveField("Container", "debug-missing"))))

	r.Expect(debug("scratch")).To(gomega.Equal(pod.Result{}), "the volume of another container fails")
	i := slices.IndexFunc(r.observed().Containers, func(c pod.Container) bool { return c.Name == "debug-scratch" })
	response, err := r.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.observed().Containers[i].ID})
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(response.GetStatus().Mounts).To(gomega.ContainElement(gomega.And(
		gomega.HaveField("ContainerPath", "/v"), gomega.HaveField("HostPath", gomega.HaveSuffix("/kubernetes.io~empty-dir/scratch")))))
}

func TestTheVolumesOfARunningPodAreRefreshedAfterAnEphemeralContainerGotMore(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	})
	r.configMap = &corev1.ConfigMap{}
	r.running()
	r.configMap = nil // for a moment
	r.pod = r.pod.DeepCopy()
	r.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "app:1", VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/v"}},
	}}}
	r.succeed(pod.Operation{Kind: pod.StartContainer, Name: "debug", SandboxID: r.observed().Sandboxes[0].ID})
	r.configMap = &corev1.ConfigMap{Data: map[string]string{"colour": "blue"}}
	r.Refresh(t.Context(), r.pod)
	mounted, err := r.volumesOf(r.pod.UID)
	r.Expect(err).NotTo(gomega.HaveOccurred())
	r.Expect(filepath.Join(mounted["settings"].HostPath, "colour")).To(gomega.BeARegularFile())
}

// fullNode is a CSI driver of a node with as many volumes as it can have.
type fullNode struct{ volume.CSI }

func (fullNode) Publish(context.Context, csi.Volume) (csi.Published, error) {
	return csi.Published{}, &csi.LimitError{Err: errors.New("no room")}
}

func TestAPodWhoseVolumesTheNodeHasNoRoomForIsRejected(t *testing.T) {
	r := newFixture(t, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}}}
	})
	id := r.sandbox()
	r.pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	r.o.Volumes.CSI = fullNode{}
	r.Expect(os.RemoveAll(filepath.Join(r.dir, "root", "pods", "u"))).To(gomega.Succeed())
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.StartContainer, Name: "app", SandboxID: id}).Reason).NotTo(gomega.BeEmpty())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	want := pod.Result{
		Reason: "VolumeAttachmentLimitExceeded", Message: "Node has reached its volume attachment limit, rejecting pod. no room", Rejected: true,
	}
	r.Expect(r.Perform(cancelled, r.pod, pod.Observed{}, pod.Operation{Kind: pod.SetUp}, nil)).To(gomega.Equal(want))
	r.Expect(r.rejected).To(gomega.BeEmpty(), "the machine rejects no pod for the start of a container, or for an operation that it has cancelled")
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: pod.SetUp})).To(gomega.Equal(want))
	r.Expect(r.rejected).To(gomega.Equal([]string{"VolumeAttachmentLimitExceeded"}))
}

func TestAPodOnTheHostsNetworkHasTheNodesAddress(t *testing.T) {
	r := newFixture(t)
	r.sandbox()
	observed := r.observed()
	r.Expect(r.PodIP(r.pod, observed)).To(gomega.Equal(observed.Sandboxes[0].IPs[0]))
	r.Expect(r.PodIP(r.pod, pod.Observed{})).To(gomega.BeEmpty())
	r.pod.Spec.HostNetwork = true
	r.Expect(r.PodIP(r.pod, observed)).To(gomega.Equal("192.0.2.1"))
}

func TestAWarningIsRecordedOncePerPod(t *testing.T) {
	r := newFixture(t)
	r.succeed(pod.Operation{Kind: pod.SetUp})
	held, err := r.resourcesOf(r.pod.UID)
	r.Expect(err).NotTo(gomega.HaveOccurred())
	for range 2 {
		r.warn(r.pod, held, "DNSConfigForming", "too many search domains")
	}
	r.Expect(r.reasons()).To(gomega.Equal([]string{"DNSConfigForming"}))
}

func TestAnUnsupportedOperationFails(t *testing.T) {
	r := newFixture(t)
	r.Expect(r.perform(t.Context(), pod.Operation{Kind: "freeze"})).To(gomega.Equal(pod.Result{Reason: "FailedSync", Message: `unsupported operation "freeze"`}))
	r.succeed(pod.Operation{Kind: pod.Cancel})
}
