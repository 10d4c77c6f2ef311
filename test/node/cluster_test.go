package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
)

// space is the namespace of one spec, and runs kubectl in it.
type space struct{ name string }

func newSpace(ctx context.Context) space {
	GinkgoHelper()
	return space{newNamespace(ctx)}
}

// command is a kubectl command that has not started yet.
func (s space) command(ctx context.Context, args ...string) *exec.Cmd {
	GinkgoHelper()
	cmd, err := s.kubectl().Command(ctx, args...)
	Expect(err).NotTo(HaveOccurred())
	return cmd
}

func (s space) kubectl() launch.Kubectl {
	k := kubectl
	k.Namespace = s.name
	return k
}

// apply applies manifests, in which ${NAMESPACE} is replaced by the spec's.
func (s space) apply(ctx context.Context, manifests string) {
	GinkgoHelper()
	apply(ctx, s.name, strings.ReplaceAll(manifests, "${NAMESPACE}", s.name))
}

// run runs kubectl, and returns what it prints on standard output.
func (s space) run(ctx context.Context, args ...string) string {
	GinkgoHelper()
	return s.feed(ctx, "", args...)
}

// feed is run with a standard input.
func (s space) feed(ctx context.Context, stdin string, args ...string) string {
	GinkgoHelper()
	out, errOut, err := s.kubectl().Run(ctx, stdin, args...)
	Expect(err).NotTo(HaveOccurred(), "kubectl %v: %s", args, errOut)
	return out
}

// try runs kubectl, which may fail, and returns its output.
func (s space) try(ctx context.Context, args ...string) (string, error) {
	out, errOut, err := s.kubectl().Run(ctx, "", args...)
	return out + errOut, err
}

// exec runs a shell's command line in a pod.
func (s space) exec(ctx context.Context, pod, line string) string {
	GinkgoHelper()
	return s.run(ctx, "exec", pod, "--", "sh", "-c", line)
}

// get returns a pod.
func (s space) get(ctx context.Context, pod string) (*corev1.Pod, error) {
	var p corev1.Pod
	err := client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: pod}, &p)
	return &p, err
}

// await waits until a pod matches, and returns it.
func (s space) await(ctx context.Context, pod string, matcher gomegatypes.GomegaMatcher) *corev1.Pod {
	GinkgoHelper()
	var p *corev1.Pod
	Eventually(func() (*corev1.Pod, error) {
		var err error
		p, err = s.get(ctx, pod)
		return p, err
	}).WithContext(ctx).Should(matcher)
	return p
}

// see waits until a pod has matched each of the matchers in order. Unlike await, it
// watches the pod, so it misses no state, however short.
func (s space) see(ctx context.Context, pod string, ways ...gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	w, err := client.Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(s.name), ctrlclient.MatchingFields{"metadata.name": pod})
	Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	for _, way := range ways {
		Eventually(w.ResultChan()).WithContext(ctx).Should(Receive(HaveField("Object", way)))
	}
}

// events returns the events about an object, as "Reason: message".
func (s space) events(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		var list corev1.EventList
		if err := client.List(ctx, &list); err != nil {
			return nil, err
		}
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name == name && e.Namespace == s.name {
				all = append(all, e.Reason+": "+e.Message)
			}
		}
		return all, nil
	}
}

func inPhase(phase corev1.PodPhase) gomegatypes.GomegaMatcher {
	return HaveField("Status.Phase", phase)
}

func haveCondition(kind corev1.PodConditionType, status corev1.ConditionStatus) gomegatypes.GomegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(HaveField("Type", kind), HaveField("Status", status))))
}

func beReady() gomegatypes.GomegaMatcher { return haveCondition(corev1.PodReady, corev1.ConditionTrue) }

func beUnready() gomegatypes.GomegaMatcher {
	return haveCondition(corev1.PodReady, corev1.ConditionFalse)
}

// container matches the status of a pod's container of any kind.
func container(name string, matcher gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return WithTransform(func(p *corev1.Pod) (corev1.ContainerStatus, error) { return containerOf(p, name) }, matcher)
}

func containerOf(p *corev1.Pod, name string) (corev1.ContainerStatus, error) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == name {
				return s, nil
			}
		}
	}
	return corev1.ContainerStatus{}, fmt.Errorf("the pod %s has no status of a container %q", p.Name, name)
}

func running() gomegatypes.GomegaMatcher { return HaveField("State.Running", Not(BeNil())) }

func waiting(reason string) gomegatypes.GomegaMatcher {
	return HaveField("State.Waiting", HaveValue(HaveField("Reason", reason)))
}

func terminated(reason string, code int32) gomegatypes.GomegaMatcher {
	return HaveField("State.Terminated", HaveValue(And(HaveField("Reason", reason), HaveField("ExitCode", code))))
}

func terminatedBefore(reason string, code int32) gomegatypes.GomegaMatcher {
	return HaveField("LastTerminationState.Terminated", HaveValue(And(HaveField("Reason", reason), HaveField("ExitCode", code))))
}

func restarted(atLeast int) gomegatypes.GomegaMatcher {
	return HaveField("RestartCount", BeNumerically(">=", atLeast))
}

// nodeName returns the name of the suite's node, which is this machine; other nodes may be in the cluster.
func nodeName() string {
	GinkgoHelper()
	name, err := os.Hostname()
	Expect(err).NotTo(HaveOccurred())
	return strings.ToLower(name)
}
