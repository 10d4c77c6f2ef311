package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/extender"
)

func TestBindReadsThePodAfterAnError(t *testing.T) {
	refused := errors.New("rejected, or no response")
	now := metav1.Now()
	for _, test := range []struct {
		name   string
		answer error
		now    func(*corev1.Pod) // the pod at the API server afterwards; nil if it was deleted
		bound  bool
		failed bool
	}{
		{name: "it is bound", bound: true},
		{name: "it was bound, but the response was lost", answer: refused, now: func(p *corev1.Pod) { p.Spec.NodeName = "n" }, bound: true},
		{name: "another scheduler has bound it", answer: refused, now: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		{name: "it was deleted", answer: refused},
		{name: "another pod has its name", answer: refused, now: func(p *corev1.Pod) { p.UID = "2" }},
		{name: "it is being deleted", answer: refused, now: func(p *corev1.Pod) { p.DeletionTimestamp = &now; p.Finalizers = []string{"example.com/x"} }},
		{name: "it was rejected", answer: refused, now: func(*corev1.Pod) {}, failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
			var binding *corev1.Binding
			builder := fake.NewClientBuilder()
			if test.now != nil {
				p := pod.DeepCopy()
				test.now(p)
				builder.WithObjects(p)
			}
			c := interceptor.NewClient(builder.Build(), interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, subresource string, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
					binding = sub.(*corev1.Binding)
					return test.answer
				},
			})
			bound, err := (&binder{client: c, plain: c, live: c}).bind(t.Context(), pod, "n")
			if bound != test.bound || (err != nil) != test.failed {
				t.Errorf("got %t, %v", bound, err)
			}
			if binding.UID != "1" || binding.Target.Name != "n" {
				t.Errorf("binding is %v", binding)
			}
		})
	}
}

func TestExtenderBindsPods(t *testing.T) {
	for _, test := range []struct {
		name               string
		managed, answer    string
		ignorable, bound   bool
		asked, byOurselves bool
	}{
		{name: "it binds", answer: `{}`, asked: true, bound: true},
		{name: "it fails", answer: `{"Error": "no device"}`, asked: true},
		{name: "it fails, and may be ignored", answer: `{"Error": "no device"}`, ignorable: true, asked: true, byOurselves: true, bound: true},
		{name: "it is not for this pod", managed: "example.com/gpu", byOurselves: true, bound: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
			var got extenderv1.ExtenderBindingArgs
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
					t.Error(err)
				}
				fmt.Fprint(w, test.answer)
			}))
			defer server.Close()
			config := configv1.Extender{URLPrefix: server.URL, BindVerb: "bind", Ignorable: test.ignorable}
			if test.managed != "" {
				config.ManagedResources = []configv1.ExtenderManagedResource{{Name: test.managed}}
			}
			e, err := extender.New(config)
			if err != nil {
				t.Fatal(err)
			}
			ourselves := false
			c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod.DeepCopy()).Build(), interceptor.Funcs{
				SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
					ourselves = true
					return nil
				},
			})
			bound, err := (&binder{client: c, plain: c, live: c, extenders: []*extender.Extender{e}}).bind(t.Context(), pod, "n")
			if bound != test.bound || (err == nil) != test.bound || ourselves != test.byOurselves {
				t.Errorf("bound is %t (%v), by the scheduler itself: %t", bound, err, ourselves)
			}
			if want := (extenderv1.ExtenderBindingArgs{PodName: "p", PodNamespace: "ns", PodUID: "1", Node: "n"}); test.asked && got != want {
				t.Errorf("the extender got %+v", got)
			}
		})
	}
}

func TestBindClaims(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	claim := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}}
	}
	taken := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "other", UID: "o"}}}
	c := fake.NewClientBuilder().WithObjects(claim("a"), claim("b"), taken,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "free"}}, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}}).Build()
	b := &binder{client: c, plain: c, live: c}

	for range 2 { // the second time, there is nothing to do
		if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "a", Volume: "free"}, {Claim: "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	var got corev1.PersistentVolumeClaim
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "b"}, &got); err != nil || got.Annotations[volume.AnnSelectedNode] != "n" {
		t.Errorf("claim b is %v: %v", got.Annotations, err)
	}
	var pv corev1.PersistentVolume
	if err := c.Get(t.Context(), client.ObjectKey{Name: "free"}, &pv); err != nil || !volume.IsVolumeBoundToClaim(&pv, claim("a")) || pv.Annotations[volume.AnnBoundByController] == "" {
		t.Errorf("volume is %v: %v", pv, err)
	}
	if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "a", Volume: "taken"}}); err == nil {
		t.Error("the volume of another claim is reserved")
	}
	if err := b.bindClaims(t.Context(), pod, "n", []decision.ClaimDecision{{Claim: "none", Volume: "free"}}); err == nil {
		t.Error("a deleted claim is bound")
	}
}

func TestPodsAreNominatedToTheNodeOnWhichTheyWait(t *testing.T) {
	for _, test := range []struct {
		rule   string
		step   step
		status string // the nomination of the pod before
		writes []string
	}{
		{"for volumes", step{claims: []decision.ClaimDecision{{Claim: "data"}}}, "", []string{"nominate n", "claim n"}},
		{"for volumes, again", step{claims: []decision.ClaimDecision{{Claim: "data"}}}, "n", []string{"claim n"}},
		{"for devices", step{waits: true}, "", []string{"nominate n"}},
		{"for devices, on another node than before", step{waits: true}, "m", []string{"nominate n"}},
	} {
		for _, expects := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, with the gate %t", test.rule, expects), func(t *testing.T) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}, Status: corev1.PodStatus{NominatedNodeName: test.status}}
				claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
				var writes []string
				c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(pod, claim).WithStatusSubresource(pod).Build(), interceptor.Funcs{
					SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
						err := c.SubResource(sub).Patch(ctx, obj, patch, opts...)
						writes = append(writes, "nominate "+obj.(*corev1.Pod).Status.NominatedNodeName)
						return err
					},
					Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
						writes = append(writes, "claim "+obj.GetAnnotations()[volume.AnnSelectedNode])
						return c.Patch(ctx, obj, patch, opts...)
					},
				})
				assumed := *pod
				assumed.Spec.NodeName = "n"
				test.step.pod, test.step.assumed = pod, &assumed
				var running sync.WaitGroup
				l := &loop{
					core: newCluster(t).core, inbox: make(chan func(), 1), running: &running, expects: expects,
					binder: &binder{client: c, plain: c, live: c},
				}
				l.execute(t.Context(), test.step, time.Time{})
				running.Wait()
				want := test.writes
				if !expects {
					want = slices.DeleteFunc(slices.Clone(want), func(write string) bool { return write == "nominate n" })
				}
				if !slices.Equal(writes, want) {
					t.Errorf("got %q, want %q", writes, want)
				}
			})
		}
	}
}

func TestAPodThatIsBoundAtOnceIsNotNominatedBefore(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
	assumed := *pod
	assumed.Spec.NodeName = "n"
	c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	(&binder{client: c, plain: c, live: c}).expect(t.Context(), step{pod: pod, assumed: &assumed})
	now := &corev1.Pod{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil || now.Status.NominatedNodeName != "" {
		t.Errorf("nominated to %q: %v", now.Status.NominatedNodeName, err)
	}
}
