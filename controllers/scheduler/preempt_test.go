package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/scheduler/decision"
)

func priority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = ptr.To(n) }
}

// full is a cluster whose node has two pods of priority 0.
func full(t *testing.T) *cluster {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("a", on("n"))
	c.pod("b", on("n"))
	return c
}

func TestPreemptorGetsThePlaceOfItsVictim(t *testing.T) {
	c := full(t)
	c.pod("high", priority(2))
	c.expect("high: 1 Insufficient cpu")
	if p := c.steps["high"].preemption; p.Node != "n" || len(p.Victims) != 1 || p.Victims[0].Name != "b" {
		t.Fatalf("got %+v", p)
	}
	// Its nomination is older in its status than the decision.
	c.pod("high", func(p *corev1.Pod) { p.Status.Message = "x" })
	c.pod("low", nil)
	c.expect("low: 1 Insufficient cpu")
	c.removePod("b")
	c.now = c.now.Add(time.Minute)
	c.expect("high -> n", "low: 1 Insufficient cpu")
}

func TestPreemptorThatIsRetriedPreemptsNoMore(t *testing.T) {
	c := full(t)
	c.pod("high", priority(2))
	c.expect("high: 1 Insufficient cpu")
	c.now = c.now.Add(time.Minute)
	c.pod("high", func(p *corev1.Pod) { p.Labels = map[string]string{"try": "again"} })
	c.expect("high: not eligible due to a terminating pod on the nominated node.")
}

func TestPreemptionThatFailedIsRetried(t *testing.T) {
	c := full(t)
	c.pod("high", priority(2))
	c.expect("high: 1 Insufficient cpu")
	c.core.preemptionFailed(c.steps["high"], errors.New("unavailable"))
	c.expect()
	c.now = c.now.Add(time.Minute)
	c.expect("high: 1 Insufficient cpu")
	if p := c.steps["high"].preemption; p.Node != "n" {
		t.Errorf("got %+v", p)
	}
}

func TestVictimsOfAPodThatWasDeletedMayBePreempted(t *testing.T) {
	c := full(t)
	c.pod("high", priority(2))
	c.expect("high: 1 Insufficient cpu")
	c.removePod("high")
	p := &preemptor{client: fake.NewClientBuilder().Build(), now: time.Now} // without the pod
	err := p.preempt(t.Context(), c.steps["high"], func(*corev1.Pod) { t.Error("a victim was deleted") })
	if !errors.Is(err, errPreemptorGone) {
		t.Fatalf("got the error %v", err)
	}
	c.core.preemptionFailed(c.steps["high"], err)
	c.pod("next", func(p *corev1.Pod) { p.Spec.Priority, p.Status.NominatedNodeName = ptr.To(int32(2)), "n" })
	c.expect("next: 1 Insufficient cpu")
	if p := c.steps["next"].preemption; p.Node != "n" {
		t.Errorf("got %+v", p)
	}
}

func TestAPodThatHasANodePreemptsNoPods(t *testing.T) {
	victim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "victim"}}
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(victim).Build(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "high", nil) // as the API server answers
		},
	})
	s := step{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "high"}}, preemption: decision.Preemption{Node: "n", Victims: []*corev1.Pod{victim}}}
	err := (&preemptor{client: c, now: time.Now}).preempt(t.Context(), s, func(*corev1.Pod) { t.Error("a victim was deleted") })
	if !errors.Is(err, errPreemptorGone) {
		t.Errorf("got %v", err)
	}
}

func TestPlaceOfANominatedPodIsFreeWhenItIsDeleted(t *testing.T) {
	for name, gone := range map[string]func(*cluster){
		"deleted":     func(c *cluster) { c.removePod("high") },
		"terminating": func(c *cluster) { c.pod("high", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }) },
		"bound elsewhere": func(c *cluster) {
			c.node("m", func(n *corev1.Node) { n.Spec.Unschedulable = true })
			c.pod("high", on("m"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := full(t)
			c.pod("high", priority(2))
			c.expect("high: 1 Insufficient cpu")
			c.removePod("b")
			c.pod("low", nil)
			gone(c)
			c.now = c.now.Add(time.Minute)
			c.expect("low -> n")
		})
	}
}

func TestVictimsThatWaitOnTheirNodeAreScheduledAgain(t *testing.T) {
	c := newCluster(t)
	c.class("example.com/disks")
	c.core.claimChanged(nil, newClaim("data"))
	c.node("n", nil)
	c.pod("important", func(p *corev1.Pod) { on("n")(p); priority(9)(p) })
	c.pod("low", uses("data"))
	c.expect("low -> n data=")
	waiting := c.steps["low"]
	c.pod("high", priority(2))
	s, _ := c.core.next()
	if p := s.preemption; p.Node != "n" || len(p.Victims) != 0 || len(s.returned) != 1 || s.returned[0].Name != "low" {
		t.Fatalf("preempts %+v, returns %v", p, s.returned)
	}
	c.expect("high -> n")
	c.core.failed(waiting) // what it was waiting for has failed, too
	c.now = c.now.Add(time.Minute)
	c.expect("low: 1 Insufficient cpu")
	c.removePod("important")
	c.expect("low -> n data=")
}

func TestVictimsThatAreBeingBoundAreDeleted(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("important", func(p *corev1.Pod) { on("n")(p); priority(9)(p) })
	c.pod("low", nil)
	c.expect("low -> n")
	c.pod("high", priority(2))
	c.expect("high: 1 Insufficient cpu")
	if s := c.steps["high"]; len(s.preemption.Victims) != 1 || len(s.returned) != 0 {
		t.Errorf("preempts %+v, returns %v", s.preemption, s.returned)
	}
}

func TestNominationOfAnEarlierSchedulerIsKept(t *testing.T) {
	c := newCluster(t)
	c.node("n", nil)
	c.pod("high", func(p *corev1.Pod) { p.Spec.Priority, p.Status.NominatedNodeName = ptr.To(int32(2)), "n" })
	c.pod("low", nil)
	c.pod("lower", nil)
	c.expect("high -> n", "low -> n", "lower: 1 Insufficient cpu")
	c.core.failed(c.steps["high"])
	c.now = c.now.Add(time.Minute)
	if got := c.core.snapshot.Nominated("high"); got != "n" {
		t.Errorf("nominated to %q", got)
	}
	// The place stays reserved.
	c.expect("high -> n", "lower: 1 Insufficient cpu")
}

func TestANominationThatIsOnlyExpectedEndsWithTheBinding(t *testing.T) {
	c := newCluster(t)
	claim := c.podWithClaim("a")
	c.pod("a", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }) // as the loop has written
	bound := claim.DeepCopy()
	bound.Annotations = map[string]string{volume.AnnBindCompleted: "yes", volume.AnnSelectedNode: "n"}
	bound.Spec.VolumeName = "pv"
	c.core.volumeChanged(nil, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	c.core.claimChanged(claim, bound)
	c.expect("a -> n")
	c.core.failed(c.steps["a"])
	if got := c.core.snapshot.Nominated("a"); got != "" {
		t.Errorf("nominated to %q", got)
	}
}

func TestPreemptionNominatesThenMarksThenDeletes(t *testing.T) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	}
	for _, test := range []struct {
		name     string
		absent   string
		deleting bool   // the victim is being deleted already
		fails    string // the request that fails
		writes   []string
		err      bool
	}{
		{name: "all writes succeed", writes: []string{"status high n", "status displaced ", "status victim PreemptionByScheduler", "delete victim", "event victim"}},
		{name: "the pod is gone", absent: "high", writes: []string{"status high n"}, err: true},
		{name: "the victim is gone", absent: "victim", writes: []string{"status high n", "status displaced ", "status victim PreemptionByScheduler"}},
		{name: "the victim is being deleted", deleting: true, writes: []string{"status high n", "status displaced "}},
		{name: "the nomination fails", fails: "status high n", writes: []string{"status high n"}, err: true},
		{name: "the deletion fails", fails: "delete victim", writes: []string{"status high n", "status displaced ", "status victim PreemptionByScheduler", "delete victim"}, err: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var objects []client.Object
			for _, name := range []string{"high", "displaced", "victim"} {
				if name != test.absent {
					objects = append(objects, pod(name))
				}
			}
			var mu sync.Mutex
			var writes []string
			write := func(what string) error {
				mu.Lock()
				defer mu.Unlock()
				writes = append(writes, what)
				if what == test.fails {
					return errors.New("unavailable")
				}
				return nil
			}
			c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).Build(), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					err := c.SubResource(sub).Patch(ctx, obj, patch, opts...)
					p := obj.(*corev1.Pod)
					what := p.Status.NominatedNodeName
					for _, condition := range p.Status.Conditions {
						what += condition.Reason
					}
					if err != nil { // the object is not read then
						what = map[string]string{"high": "n", "victim": "PreemptionByScheduler"}[p.Name]
					}
					return errors.Join(write(fmt.Sprintf("%s %s %s", sub, p.Name, what)), err)
				},
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					if err := write("delete " + obj.GetName()); err != nil {
						return err
					}
					return c.Delete(ctx, obj, opts...)
				},
			})
			p := &preemptor{client: c, now: func() time.Time { return time.Unix(0, 0) }}
			victim := pod("victim")
			if test.deleting {
				victim.DeletionTimestamp = &metav1.Time{}
			}
			err := p.preempt(t.Context(), step{pod: pod("high"), preemption: decision.Preemption{
				Node: "n", Victims: []*corev1.Pod{victim}, Displaced: []*corev1.Pod{pod("displaced")},
			}}, func(victim *corev1.Pod) {
				if write("event "+victim.Name) != nil {
					t.Fail()
				}
			})
			if (err != nil) != test.err || !slices.Equal(writes, test.writes) {
				t.Errorf("got %q, %v", writes, err)
			}
		})
	}
}
