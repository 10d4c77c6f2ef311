package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("deployment", func() {
	var ns string
	BeforeEach(func(ctx SpecContext) { ns, _ = newWorkplace(ctx) })
	in := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return run(ctx, append([]string{"-n", ns}, args...)...)
	}

	It("creates its pods, and kubectl rollout status reports the progress", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=3")
		Expect(in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")).To(ContainSubstring(`deployment "web" successfully rolled out`))
		Expect(in(ctx, "get", "deployment", "web", "--no-headers")).To(MatchRegexp(`^web +3/3 +3 +3 `))
		Eventually(func() string { return in(ctx, "describe", "deployment", "web") }).Should(SatisfyAll(
			MatchRegexp(`Annotations: +deployment.kubernetes.io/revision: 1`),
			MatchRegexp(`Replicas: +3 desired \| 3 updated \| 3 total \| 3 available \| 0 unavailable`),
			MatchRegexp(`Available +True +MinimumReplicasAvailable`),
			MatchRegexp(`Progressing +True +NewReplicaSetAvailable`),
			MatchRegexp(`NewReplicaSet: +web-\w+ \(3/3 replicas created\)`),
			MatchRegexp(`Normal +ScalingReplicaSet +\S+ +deployment-controller +Scaled up replica set web-\w+ from 0 to 3`),
		))
		in(ctx, "scale", "deployment", "web", "--replicas=1")
		Eventually(func() int { return len(listPods(ctx, ns)) }).Should(Equal(1))
		in(ctx, "delete", "deployment", "web", "--cascade=foreground", "--timeout=5m")
		Expect(listPods(ctx, ns)).To(BeEmpty())
	})

	It("updates its pods, keeps the history and rolls back", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=4")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		pods := follow(ctx, ns)
		in(ctx, "set", "image", "deployment/web", "web=web:2")
		in(ctx, "annotate", "deployment/web", "kubernetes.io/change-cause=second")
		Expect(in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")).To(ContainSubstring("successfully rolled out"))
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 4}))
		Expect(pods.fewestReady(4)).To(BeNumerically(">=", 3), "one may be unavailable")

		Expect(in(ctx, "rollout", "history", "deployment/web")).To(MatchRegexp(`1 +<none>\n2 +second`))
		in(ctx, "rollout", "undo", "deployment/web")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:1": 4}))
		Expect(in(ctx, "rollout", "history", "deployment/web")).To(MatchRegexp(`2 +second\n3 +<none>`))
		Expect(in(ctx, "get", "replicasets", "-o", "jsonpath={.items[*].metadata.annotations.deployment\\.kubernetes\\.io/revision-history}")).To(Equal("1"))

		By("the annotation of the API's first versions rolls back, too")
		in(ctx, "annotate", "deployment/web", "deprecated.deployment.rollback.to=2")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 4}))
		Expect(in(ctx, "rollout", "history", "deployment/web")).To(MatchRegexp(`3 +<none>\n4 +second`))
		Eventually(func() string { return in(ctx, "describe", "deployment", "web") }).Should(MatchRegexp(`Normal +DeploymentRollback +\S+ +deployment-controller +Rolled back deployment "web" to revision 2`))

		in(ctx, "rollout", "restart", "deployment/web")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Expect(in(ctx, "get", "replicasets", "--no-headers")).To(HaveLines(3))
		in(ctx, "patch", "deployment", "web", `--patch={"spec":{"revisionHistoryLimit":1}}`)
		Eventually(func() string { return in(ctx, "get", "replicasets", "--no-headers") }).Should(HaveLines(2))
	})

	It("pauses and resumes", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=2")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		in(ctx, "rollout", "pause", "deployment/web")
		Eventually(progress(ctx, ns)).Should(Equal("Unknown DeploymentPaused: Deployment is paused"))
		in(ctx, "set", "image", "deployment/web", "web=web:2")
		in(ctx, "scale", "deployment/web", "--replicas=3")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:1": 3}))
		Expect(in(ctx, "get", "replicasets", "--no-headers")).To(HaveLines(1))
		in(ctx, "rollout", "resume", "deployment/web")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 3}))
		Eventually(progress(ctx, ns)).Should(MatchRegexp(`^True NewReplicaSetAvailable: ReplicaSet "web-\w+" has successfully progressed.$`))
	})

	It("reports a rollout without progress, and keeps the available pods", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=2")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		in(ctx, "patch", "deployment", "web", `--patch={"spec":{"progressDeadlineSeconds":2,"template":{"spec":{"schedulerName":"absent"}}}}`)
		_, errOut, err := kubectl.Run(ctx, "", "-n", ns, "rollout", "status", "deployment/web", "--timeout=5m")
		Expect(err).To(HaveOccurred())
		Expect(errOut).To(ContainSubstring(`deployment "web" exceeded its progress deadline`))
		c := deploymentCondition(ctx, ns, appsv1.DeploymentProgressing)
		Expect(c.Reason).To(Equal("ProgressDeadlineExceeded"))
		Expect(in(ctx, "get", "deployment", "web", "--no-headers")).To(MatchRegexp(`^web +2/2 +1 +2 `))

		in(ctx, "patch", "deployment", "web", `--patch={"spec":{"progressDeadlineSeconds":600}}`)
		in(ctx, "rollout", "undo", "deployment/web")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(func() int { return len(listPods(ctx, ns)) }).Should(Equal(2))
	})

	It("reports that its pods cannot be created", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=1")
		in(ctx, "patch", "deployment", "web", `--patch={"spec":{"template":{"metadata":{"finalizers":["no finalizer"]}}}}`)
		Eventually(func() string { return in(ctx, "describe", "deployment", "web") }).Should(MatchRegexp(`ReplicaFailure +True +FailedCreate`))
	})

	It("runs no old and new pods at the same time with the strategy Recreate", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=3")
		in(ctx, "patch", "deployment", "web", `--patch={"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		pods := follow(ctx, ns)
		in(ctx, "set", "image", "deployment/web", "web=web:2")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 3}))
		Expect(pods.mostImages()).To(Equal(1))
	})

	It("adopts replica sets that an orphaning deletion has left", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=2")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		before := podUIDs(ctx, ns)
		in(ctx, "delete", "deployment", "web", "--cascade=orphan", "--timeout=5m")
		Eventually(func() string {
			return in(ctx, "get", "replicasets", "-o", "jsonpath={.items[*].metadata.ownerReferences}")
		}).Should(BeEmpty())
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=3")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Expect(in(ctx, "get", "replicasets", "--no-headers")).To(HaveLines(1))
		Expect(podUIDs(ctx, ns).IsSuperset(before)).To(BeTrue())
	})

	It("uses another name for a replica set when its own is in use", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=0")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		in(ctx, "delete", "deployment", "web", "--cascade=orphan", "--timeout=5m")
		in(ctx, "label", "replicasets", "--all", "app=other", "--overwrite")
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=1")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(func() string { return in(ctx, "get", "replicasets", "--no-headers") }).Should(HaveLines(2))
		Eventually(func() string { return in(ctx, "get", "deployment", "web", "-o", "jsonpath={.status.collisionCount}") }).Should(Equal("1"))
	})

	It("makes progress while another client keeps writing the deployment", func(ctx SpecContext) {
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=3")
		stop := disturb(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})
		in(ctx, "set", "image", "deployment/web", "web=web:2")
		Eventually(func(g Gomega) {
			g.Expect(imagesOf(ctx, ns)()).To(Equal(map[string]int{"web:2": 3}))
			g.Expect(progress(ctx, ns)()).To(HavePrefix("True NewReplicaSetAvailable"))
		}).Should(Succeed())
		stop()
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
	})

	It("has exactly its pods when the manager is killed while it creates them", func(ctx SpecContext) {
		pods := follow(ctx, ns)
		in(ctx, "create", "deployment", "web", "--image=web:1", "--replicas=0")
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		in(ctx, "scale", "deployment", "web", "--replicas=50")
		Eventually(pods.seen).WithPolling(time.Millisecond).Should(BeNumerically(">=", 3))
		manager.Kill()
		startManager(ctx)
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		// What the killed manager has asked for was done before the next one began.
		Eventually(pods.seen).Should(Equal(50))
		Expect(pods.most()).To(Equal(50))

		in(ctx, "set", "image", "deployment/web", "web=web:2")
		Eventually(imagesOf(ctx, ns)).WithPolling(5 * time.Millisecond).Should(HaveKey("web:2"))
		manager.Kill()
		startManager(ctx)
		in(ctx, "rollout", "status", "deployment/web", "--timeout=5m")
		Eventually(imagesOf(ctx, ns)).Should(Equal(map[string]int{"web:2": 50}))
		Expect(pods.fewestReady(50)).To(BeNumerically(">=", 50-12), "a quarter may be unavailable")
	})
})

// HaveLines is a text with that many lines.
func HaveLines(n int) OmegaMatcher { return MatchRegexp(`^(.+\n){%d}$`, n) }

// imagesOf counts the pods that are not being deleted by their image.
func imagesOf(ctx context.Context, namespace string) func() map[string]int {
	return func() map[string]int {
		count := map[string]int{}
		for _, pod := range listPods(ctx, namespace) {
			if pod.DeletionTimestamp == nil {
				count[pod.Spec.Containers[0].Image]++
			}
		}
		return count
	}
}

func podUIDs(ctx context.Context, namespace string) sets.Set[types.UID] {
	uids := sets.New[types.UID]()
	for _, pod := range listPods(ctx, namespace) {
		uids.Insert(pod.UID)
	}
	return uids
}

// progress is the condition Progressing of the deployment web.
func progress(ctx context.Context, namespace string) func() string {
	return func() string {
		c := deploymentCondition(ctx, namespace, appsv1.DeploymentProgressing)
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
}

func deploymentCondition(ctx context.Context, namespace string, name appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "web"}, &d)).To(Succeed())
	for _, c := range d.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return appsv1.DeploymentCondition{}
}

// disturb annotates an object again and again until stop is called.
func disturb(ctx context.Context, obj ctrlclient.Object) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		defer GinkgoRecover()
		for i := 0; ctx.Err() == nil; i++ {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"disturbed":"%d"}}}`, i)
			if err := client.Patch(ctx, obj, ctrlclient.RawPatch(types.MergePatchType, []byte(patch))); ctx.Err() == nil {
				Expect(err).NotTo(HaveOccurred())
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// followed is what has been seen of the pods of a namespace, event by event.
type followed struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod
	created int
	moments []moment
}

// moment is the state after an event, of pods that have not ended: those that are
// not being deleted, those of them that are ready, and how many images all have.
type moment struct{ active, ready, images int }

// follow watches the pods of a namespace until the spec ends.
func follow(ctx context.Context, namespace string) *followed {
	GinkgoHelper()
	f := &followed{pods: map[types.UID]*corev1.Pod{}}
	w, err := client.Watch(ctx, &corev1.PodList{}, ctrlclient.InNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			f.add(event)
		}
	}()
	return f
}

func (f *followed) add(event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch event.Type {
	case watch.Added:
		f.created++
		f.pods[pod.UID] = pod
	case watch.Modified:
		f.pods[pod.UID] = pod
	case watch.Deleted:
		delete(f.pods, pod.UID)
	}
	var now moment
	images := sets.New[string]()
	for _, pod := range f.pods {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		images.Insert(pod.Spec.Containers[0].Image)
		if pod.DeletionTimestamp != nil {
			continue
		}
		now.active++
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				now.ready++
			}
		}
	}
	now.images = images.Len()
	f.moments = append(f.moments, now)
}

// seen is the number of pods that were created.
func (f *followed) seen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.created
}

// most is how many pods there were at most at one time.
func (f *followed) most() (most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.moments {
		most = max(most, m.active)
	}
	return most
}

// mostImages is how many images pods had at most at one time, those that were
// being deleted included.
func (f *followed) mostImages() (most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.moments {
		most = max(most, m.images)
	}
	return most
}

// fewestReady is how many pods were ready at least, once that many were.
func (f *followed) fewestReady(once int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	fewest := -1
	for _, m := range f.moments {
		if fewest < 0 && m.ready >= once {
			fewest = m.ready
		}
		if fewest >= 0 {
			fewest = min(fewest, m.ready)
		}
	}
	return fewest
}
