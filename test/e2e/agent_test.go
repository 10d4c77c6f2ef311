package e2e

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/node"
	"svc.dev/svc/svclet/source"
	"svc.dev/svc/svclet/status"
)

// restClient is a client of one group, as a node agent has it: protobuf, and no
// limit of its own.
func restClient(gv schema.GroupVersion) rest.Interface {
	GinkgoHelper()
	config := rest.CopyConfig(server.Config)
	config.QPS = -1
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	c, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// agent is the part of a node agent that meets the API, without a runtime.
type agent struct {
	node     *node.Node
	sources  *source.Sources
	statuses *status.Manager
	updates  chan source.Update
}

func startAgent(name, manifests string) *agent {
	GinkgoHelper()
	core := restClient(corev1.SchemeGroupVersion)
	a := &agent{updates: make(chan source.Update, 100)}
	var err error
	a.node, err = node.New(node.Options{
		Name: name, Hostname: name, Register: true, MaxPods: 110,
		Core: core, Coordination: restClient(coordinationv1.SchemeGroupVersion),
		Machine: node.Machine{CPUs: 1, Memory: 1 << 30, Storage: 1 << 30}, UpdateFrequency: 100 * time.Millisecond,
		Runtime: func(context.Context) (node.RuntimeStatus, error) {
			return node.RuntimeStatus{Name: "fake", Version: "1", Conditions: []*runtimeapi.RuntimeCondition{
				{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
			}}, nil
		},
	})
	Expect(err).NotTo(HaveOccurred())
	a.statuses = status.New(status.Options{Core: core})
	a.sources, err = source.New(source.Options{
		NodeName: name, Core: core, NodeUID: a.node.UID, Observed: a.statuses.Observed, Gone: a.statuses.Gone, Path: manifests,
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.node.Run(ctx) })
	running.Go(func() { a.statuses.Run(ctx) })
	running.Go(func() { a.sources.Run(ctx, a.updates) })
	DeferCleanup(func(ctx SpecContext) {
		cancel()
		running.Wait()
		// The spec may have ended before the node was registered.
		Expect(client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "is gone")))
	})
	return a
}

// await returns the pod of this name once the sources deliver it in the state of is.
func (a *agent) await(name string, is func(*corev1.Pod) bool) *corev1.Pod {
	GinkgoHelper()
	for {
		var u source.Update
		Eventually(a.updates).Should(Receive(&u))
		for _, pod := range u.Set {
			if pod.Name == name && is(pod) {
				return pod
			}
		}
	}
}

var _ = Describe("what a node agent and the API server tell each other", func() {
	var (
		a         *agent
		manifests string
	)
	const name = "agent-1"
	running := func(*corev1.Pod) corev1.PodStatus {
		return corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.1.0.2", PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}}, QOSClass: corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", Image: "i", ImageID: "i@x", ContainerID: "fake://1", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}},
		}
	}
	ended := func(s corev1.PodStatus) corev1.PodStatus {
		s.Phase = corev1.PodSucceeded
		s.Conditions[0].Status = corev1.ConditionFalse
		s.ContainerStatuses[0].Ready = false
		s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now(), Reason: "Completed"}}
		return s
	}

	BeforeEach(func() {
		manifests = GinkgoT().TempDir()
		a = startAgent(name, manifests)
	})

	It("registers the node with a lease, and again when it is deleted", func(ctx SpecContext) {
		get := func(g Gomega) *corev1.Node {
			n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(n.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
			return n
		}
		var first *corev1.Node
		Eventually(func(g Gomega) { first = get(g) }).Should(Succeed())
		Expect(client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(get(g).UID).NotTo(Equal(first.UID)) }).Should(Succeed())
		Eventually(func() (*coordinationv1.Lease, error) {
			return client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		}).Should(HaveField("Spec.HolderIdentity", HaveValue(Equal(name))))
	})

	It("writes a pod's statuses in order, and deletes the pod when it has terminated", func(ctx SpecContext) {
		pods := client.CoreV1().Pods(metav1.NamespaceDefault)
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "told"},
			Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}, RestartPolicy: corev1.RestartPolicyNever},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		pod := a.await("told", func(*corev1.Pod) bool { return true })
		// A condition that another client has set stays.
		gate := []byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`)
		_, err = pods.Patch(ctx, "told", "application/strategic-merge-patch+json", gate, metav1.PatchOptions{}, "status")
		Expect(err).NotTo(HaveOccurred())
		a.statuses.Set(pod, running(pod))
		Eventually(func(g Gomega) {
			got, err := pods.Get(ctx, "told", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Status.Phase).To(Equal(corev1.PodRunning))
			g.Expect(got.Status.Conditions).To(ContainElement(HaveField("Type", corev1.PodConditionType("example.com/gate"))))
			g.Expect(got.Status.ContainerStatuses).To(HaveLen(1))
		}).Should(Succeed())
		before, err := pods.Get(ctx, "told", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		a.statuses.Set(pod, running(pod))
		Consistently(func(g Gomega) {
			now, err := pods.Get(ctx, "told", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			// Only the start of the container may differ, by a second.
			if now.Status.ContainerStatuses[0].State.Running.StartedAt == before.Status.ContainerStatuses[0].State.Running.StartedAt {
				g.Expect(now.ResourceVersion).To(Equal(before.ResourceVersion))
			}
		}, "300ms").Should(Succeed())

		Expect(pods.Delete(ctx, "told", metav1.DeleteOptions{})).To(Succeed())
		pod = a.await("told", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		a.statuses.Set(pod, ended(running(pod)))
		a.statuses.Finish(pod)
		Eventually(func() bool {
			_, err := pods.Get(ctx, "told", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).Should(BeTrue())
	})

	It("creates mirror pods for static pods, also after their deletion", func(ctx SpecContext) {
		pods := client.CoreV1().Pods(metav1.NamespaceDefault)
		manifest := filepath.Join(manifests, "s.yaml")
		Expect(os.WriteFile(manifest, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: static}\nspec: {containers: [{name: c, image: i}]}\n"), 0o600)).To(Succeed())
		static := a.await("static-"+name, func(*corev1.Pod) bool { return true })
		a.statuses.Set(static, running(static))
		mirror := &corev1.Pod{}
		shown := func(g Gomega) {
			var err error
			mirror, err = pods.Get(ctx, static.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(mirror.UID).NotTo(Equal(static.UID))
			g.Expect(mirror.Annotations).To(HaveKeyWithValue(corev1.MirrorPodAnnotationKey, string(static.UID)))
			g.Expect(mirror.OwnerReferences).To(HaveLen(1))
			g.Expect(mirror.Status.Phase).To(Equal(corev1.PodRunning))
		}
		Eventually(shown).Should(Succeed())
		first := mirror.UID
		Expect(pods.Delete(ctx, static.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) {
			shown(g)
			g.Expect(mirror.UID).NotTo(Equal(first))
		}).Should(Succeed())

		Expect(os.Remove(manifest)).To(Succeed())
		Eventually(func() int { return len(a.sources.Pods()) }).Should(BeZero())
		a.sources.Released(static)
		Eventually(func() bool {
			_, err := pods.Get(ctx, static.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}).Should(BeTrue())
	})
})
