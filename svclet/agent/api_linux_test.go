package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/apifake"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/runtime/runtimetest"
)

// cluster is a machine whose agents have an API server.
type cluster struct {
	*machine
	mu sync.Mutex
	// fault returns errors of the API server; nil for none.
	fault func(apifake.Request) error
	// early are pods that were deleted while the runtime had something of them.
	early []string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{machine: newMachine(t, runtimetest.Options{Events: true})}
	c.api = apifake.New(t)
	c.adjust = func(_ *config.Flags, o *config.Configuration) {
		o.StaticPodPath = ""
		o.RuntimeRequestTimeout.Duration = 3 * time.Second
		o.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 10 * time.Millisecond}
	}
	c.overrides.objects = func(objects) objects { return noObjects{} } // the server has no services
	c.api.Fail(func(r apifake.Request) error {
		if r.Verb == "delete" && r.Resource == "pods" && slices.Contains(c.runtime.Pods(), types.UID("uid-"+r.Name)) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.early = append(c.early, r.Name)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.fault != nil {
			return c.fault(r)
		}
		return nil
	})
	return c
}

// fails makes requests to the API server fail for which f returns an error.
func (c *cluster) fails(f func(apifake.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// create binds a pod to the node, which the API knows by this name.
func (c *cluster) create(name string, changes ...func(*corev1.Pod)) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			NodeName: "node", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
			TerminationGracePeriodSeconds: ptr.To[int64](1), EnableServiceLinks: ptr.To(false),
			Containers: []corev1.Container{{Name: "app", Image: "app:1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(p)
	}
	c.api.Put(p)
}

// delete marks a pod for deletion, as its user does.
func (c *cluster) delete(name string) {
	p := c.api.Pod("default", name)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](1)
	c.api.Put(p)
}

func (c *cluster) gone(name string) func() bool {
	return func() bool { return c.api.Pod("default", name) == nil }
}

func (c *cluster) runs(name string) func() bool {
	return func() bool {
		p := c.api.Pod("default", name)
		return p != nil && slices.ContainsFunc(p.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
	}
}

func TestAPodIsDeletedOnlyWhenNothingOfItRuns(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("a")
	c.create("b")
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	c.Eventually(c.runs("b")).Should(gomega.BeTrue())
	release := c.held("RemovePodSandbox")
	c.delete("a")
	c.Eventually(c.calls("RemovePodSandbox")).Should(gomega.BeNumerically(">=", 1))
	c.create("c")
	c.Eventually(c.runs("c")).Should(gomega.BeTrue()) // the agent has had the time
	c.Expect(c.gone("a")()).To(gomega.BeFalse())
	release()
	c.Eventually(c.gone("a")).Should(gomega.BeTrue())
	c.Expect(c.early).To(gomega.BeEmpty())
	c.Expect(c.runs("b")()).To(gomega.BeTrue())
}

func TestTheEndOfAnAgentChangesNoStatus(t *testing.T) {
	c := newCluster(t)
	c.start()
	c.create("a")
	c.Eventually(c.runs("a")).Should(gomega.BeTrue())
	status := c.api.Pod("default", "a").Status
	c.stop()
	c.Expect(c.api.Pod("default", "a").Status).To(gomega.Equal(status))
	c.start()
	c.Eventually(c.agent.node.Known).Should(gomega.BeTrue())
	c.create("b")
	c.Eventually(c.runs("b")).Should(gomega.BeTrue())
	c.Expect(c.api.Pod("default", "a").Status).To(gomega.Equal(status))
}

// TestPodsOfTheAPIConvergeAfterRandomFaults creates and deletes pods, makes the
// runtime and the API server fail and restarts the agent, all at random.
func TestPodsOfTheAPIConvergeAfterRandomFaults(t *testing.T) {
	seed, rounds := number(t, soakSeed, 1), number(t, soakRounds, 4)
	c := newCluster(t)
	chance := rand.New(rand.NewPCG(uint64(seed), 1))
	var history []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d: %q", soakSeed, seed, history)
		}
	})
	c.start()
	alive, deleted := []string{}, []string{}
	for i := range rounds {
		for j := range 5 + chance.IntN(20) {
			what := chance.IntN(8)
			name := fmt.Sprintf("p%d-%d", i, j)
			switch what {
			case 0, 1, 2:
				c.create(name)
				alive = append(alive, name)
			case 3, 4:
				if len(alive) == 0 {
					continue
				}
				n := chance.IntN(len(alive))
				name = alive[n]
				alive = slices.Delete(alive, n, n+1)
				if chance.IntN(3) == 0 {
					c.api.Remove(c.api.Pod("default", name)) // by force
				} else {
					c.delete(name)
				}
				deleted = append(deleted, name)
			case 5:
				c.stop()
				c.start()
			case 6:
				c.runtime.Down()
				c.Expect(c.runtime.Up()).To(gomega.Succeed())
			case 7:
				c.api.EndWatches()
				left := 1 + chance.IntN(10)
				c.fails(func(apifake.Request) error {
					if left--; left >= 0 {
						return []error{apifake.ErrDrop, apierrors.NewServiceUnavailable("no"), apierrors.NewInternalError(errors.New("no"))}[left%3]
					}
					return nil
				})
			}
			history = append(history, fmt.Sprintf("%d %s", what, name))
			time.Sleep(time.Duration(chance.IntN(30)) * time.Millisecond)
		}
		c.fails(nil)
		history = append(history, "rest")
		for _, name := range alive {
			c.Eventually(c.runs(name)).Should(gomega.BeTrue(), name)
		}
		for _, name := range deleted {
			c.Eventually(c.gone(name)).Should(gomega.BeTrue(), name)
		}
		c.Eventually(c.runtime.Pods).Should(gomega.HaveLen(len(alive)))
		c.Eventually(func() int { return c.agent.pods.Count(true).Desired }).Should(gomega.Equal(len(alive)))
		c.Eventually(func() []types.UID {
			return slices.DeleteFunc(c.runtime.Pods(), func(uid types.UID) bool { return c.agent.pods.IsKnown(uid) })
		}).Should(gomega.BeEmpty())
		for _, name := range deleted {
			c.Eventually(func() bool {
				_, kept := c.agent.pods.statuses.Status(types.UID("uid-" + name))
				return kept
			}).Should(gomega.BeFalse(), name)
		}
		deleted = nil
		c.Expect(c.early).To(gomega.BeEmpty())
	}
}
