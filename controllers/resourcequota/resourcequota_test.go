package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/controllers/discovery"
)

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		rule               string
		hard, before, used string
		want               string
	}{
		{"usage is reported for limited resources", "pods=9", "", "pods=2", "pods=2"},
		{"not of anything else any more", "pods=9", "pods=1 services=3", "pods=2", "pods=2"},
		{"what cannot be calculated stays as it was", "pods=9 services=9", "pods=1 services=3", "pods=2", "pods=2 services=3"},
		{"usage of an unknown resource is not reported", "example.com/other=1 pods=9", "", "pods=2", "pods=2"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list(test.hard)}, Status: corev1.ResourceQuotaStatus{Used: list(test.before)}}
			got := status(q, list(test.used))
			if diff := cmp.Diff([]string{test.hard, test.want}, []string{describe(got.Hard), describe(got.Used)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUsageThatIsLoweredIsCalculatedAgain reconciles a quota in which admission has counted
// a service that the cache does not have yet.
func TestUsageThatIsLoweredIsCalculatedAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: list("services=3")},
		Status: corev1.ResourceQuotaStatus{Hard: list("services=3"), Used: list("services=1")}}
	r := &reconciler{
		client:   fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(q).WithStatusSubresource(q).Build(),
		counters: newCounters(t.Context(), nil, nil), resync: time.Hour, now: func() time.Time { return now },
	}
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "q"}}
	reconciles := func(want time.Duration, used string) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), request)
		if err != nil || result.RequeueAfter != want {
			t.Errorf("requeued after %s, %v; want %s", result.RequeueAfter, err, want)
		}
		if err := r.client.Get(t.Context(), request.NamespacedName, q); err != nil || describe(q.Status.Used) != used {
			t.Errorf("used %s, %v; want %s", describe(q.Status.Used), err, used)
		}
	}
	reconciles(recount, "services=0")
	if err := r.client.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "counted"}}); err != nil {
		t.Fatal(err)
	}
	reconciles(time.Hour, "services=1")
}

func TestResourceClaimsAreMeasuredWhereTheyAreServed(t *testing.T) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}}
	q.Spec.Hard = list("count/resourceclaims.resource.k8s.io=9 gpu.deviceclass.resource.k8s.io/devices=9 requests.example.com/gpu=9")
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list("example.com/gpu=2")}}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
	claim := func(name string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2,
		}}}
		return c
	}
	made := claim("made")
	made.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "u", Controller: ptr.To(true)}}
	for _, test := range []struct {
		extended bool
		want     string
	}{
		{false, "count/resourceclaims.resource.k8s.io=2 gpu.deviceclass.resource.k8s.io/devices=4 requests.example.com/gpu=2"},
		{true, "count/resourceclaims.resource.k8s.io=2 gpu.deviceclass.resource.k8s.io/devices=4 requests.example.com/gpu=4"},
	} {
		r := &reconciler{
			client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(q).WithObjects(q.DeepCopy(), class, pod, made, claim("own")).Build(),
			claims: true, extended: test.extended, now: time.Now, resync: time.Hour, counters: newCounters(t.Context(), nil, nil),
		}
		key := types.NamespacedName{Namespace: "default", Name: "q"}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		got := &corev1.ResourceQuota{}
		if err := r.client.Get(t.Context(), key, got); err != nil || describe(got.Status.Used) != test.want {
			t.Errorf("used %s, %v; want %s", describe(got.Status.Used), err, test.want)
		}
	}
}

func TestFind(t *testing.T) {
	served := func(group, resource string, namespaced bool, verbs ...string) discovery.Resource {
		return discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespaced: namespaced, Verbs: verbs}
	}
	all := []string{"create", "delete", "list", "watch"}
	s := discovery.Snapshot{
		Resources: []discovery.Resource{
			served("core.example.com", "configmaps", true, all...), served("apps", "deployments", true, all...),
			served("core.example.com", "nodes", false, all...), served("authorization", "reviews", true, "create"),
		},
		Failed: map[schema.GroupVersion]discovery.Failure{
			{Group: "away", Version: "v1"}: {Known: true, Last: []discovery.Resource{served("away", "widgets", true, all...)}},
		},
	}
	r := &reconciler{core: "core.example.com"}
	for _, test := range []struct {
		rule, resource string
		want           bool
	}{
		{"a resource is found by its group", "deployments.apps", true},
		{"without a group, it is of the core group, whatever its name", "configmaps", true},
		{"one that is not in namespaces is not counted", "nodes", false},
		{"nor one without objects", "reviews.authorization", false},
		{"nor one that is not served", "widgets.other", false},
		{"one whose group is away is what it was", "widgets.away", true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if _, ok := r.find(s, schema.ParseGroupResource(test.resource)); ok != test.want {
				t.Errorf("found: %t", ok)
			}
		})
	}
}

func TestListNotesWhenPodsEnd(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name string, deleted time.Duration) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if deleted != 0 {
			p.Finalizers = []string{"example.com/hold"}
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(deleted)}, ptr.To(int64(30))
		}
		return p
	}
	r := &reconciler{
		client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod("lives", 0), pod("later", time.Minute), pod("soon", -20*time.Second), pod("over", -time.Hour)).Build(),
		now:    func() time.Time { return now },
	}
	again := schedule{after: time.Hour}
	pods, err := r.lists(t.Context(), &again).Pods("default")
	if err != nil || len(pods) != 4 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	if want := 10*time.Second + time.Millisecond; again.after != want {
		t.Errorf("looks again in %s, want %s", again.after, want)
	}
	usage := quota.PodUsage(pod("soon", -20*time.Second), now.Add(again.after))
	if _, counts := usage[corev1.ResourcePods]; counts {
		t.Error("the pod still counts when the controller calculates the usage again")
	}
}

// TestCounters counts real informers' objects from a fake API.
func TestCounters(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	object := func(namespace, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	api := metadatafake.NewSimpleMetadataClient(scheme, object("default", "a"), object("default", "b"), object("other", "c"))
	enqueued := make(chan reconcile.Request, 10)
	ctx, stop := context.WithCancel(t.Context())
	c := newCounters(ctx, api, func(requests ...reconcile.Request) {
		for _, r := range requests {
			enqueued <- r
		}
	})
	one, two := types.NamespacedName{Namespace: "default", Name: "one"}, types.NamespacedName{Namespace: "other", Name: "two"}
	count := func(namespace string) string {
		objects, err := c.list(ctx, secrets, namespace)
		return fmt.Sprint(len(objects), err)
	}

	c.want(one, map[schema.GroupVersionResource]bool{secrets: true})
	c.want(two, map[schema.GroupVersionResource]bool{secrets: true})
	if got := count("default"); got != "2 <nil>" {
		t.Errorf("the objects of a namespace: %s", got)
	}
	if len(enqueued) > 0 {
		t.Errorf("new objects request %s: admission counts them", <-enqueued)
	}
	if err := api.Resource(secrets).Namespace("default").Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if req := <-enqueued; req.NamespacedName != one {
		t.Errorf("a deleted object requests its namespace's quotas, not %s", req)
	}
	if _, err := c.list(ctx, widgets, "default"); err == nil {
		t.Error("what no quota counts is watched")
	}
	c.want(one, nil)
	if got := count("other"); got != "1 <nil>" {
		t.Errorf("a kind is watched as long as a quota counts it: %s", got)
	}
	c.want(two, map[schema.GroupVersionResource]bool{widgets: true})
	if kinds := slices.Collect(maps.Keys(c.kinds)); !slices.Equal(kinds, []schema.GroupVersionResource{widgets}) {
		t.Errorf("watched: %v", kinds)
	}
	stop()
	if err := c.wait(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// list reads "cpu=1 memory=1Gi".
func list(text string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, word := range strings.Fields(text) {
		name, amount, _ := strings.Cut(word, "=")
		l[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return l
}

func describe(l corev1.ResourceList) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		amount := l[name]
		words = append(words, fmt.Sprintf("%s=%s", name, amount.String()))
	}
	return strings.Join(words, " ")
}
