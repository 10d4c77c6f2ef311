package peers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/test/peers/difference"
)

// The annotations of pods in pods/.
const (
	// settledAnnotation has the fields, "path=value path=value", of the state in which
	// the pod is compared. Without it, a pod is compared when it has ended or, with
	// the restart policy Always, when it is Ready.
	settledAnnotation = "peers/settled"
	// afterAnnotation names the pod that must have settled before this one is
	// created.
	afterAnnotation = "peers/after"
	// staticAnnotation marks a static pod, which the agent reads from a file; the API
	// has its mirror pod.
	staticAnnotation = "peers/static"
	// thenAnnotation names one of actions, which is executed when the pod is ready or,
	// for "resync", when a container waits for its third restart.
	thenAnnotation = "peers/then"
)

// actions change a pod that is ready.
var actions = map[string]func(ctx context.Context, client ctrlclient.Client, pod *corev1.Pod) error{
	"debug": func(ctx context.Context, client ctrlclient.Client, pod *corev1.Pod) error {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: busybox, Command: []string{"sh", "-c", "exit 9"},
		}}}
		return client.SubResource("ephemeralcontainers").Update(ctx, pod)
	},
	"delete": func(ctx context.Context, client ctrlclient.Client, pod *corev1.Pod) error {
		return client.Delete(ctx, pod)
	},
	// Kubelet reports that a container waits when it syncs the pod next: after a
	// change of its object, or a minute.
	"resync": func(ctx context.Context, client ctrlclient.Client, pod *corev1.Pod) error {
		patch := `{"metadata": {"annotations": {"peers/looked": "again"}}}`
		return client.Patch(ctx, pod, ctrlclient.RawPatch(types.MergePatchType, []byte(patch)))
	},
	"open-gate": func(ctx context.Context, client ctrlclient.Client, pod *corev1.Pod) error {
		patch := `{"status": {"conditions": [{"type": "peers.test/open", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
		return client.SubResource("status").Patch(ctx, pod, ctrlclient.RawPatch(types.StrategicMergePatchType, []byte(patch)))
	},
}

const (
	// restTime is how long a pod's status must be unchanged for the pod to be settled:
	// longer than kubelet's relist period.
	restTime = 4 * time.Second
	// settleTimeout bounds the wait for all pods. Three restarts take more than half a
	// minute, and two agents share the machine.
	settleTimeout = 5 * time.Minute
	// maxBusy bounds the pods of a side that have not settled. If all ran at once,
	// they would miss their deadlines and fail their probes.
	maxBusy = 25
)

// settling runs the pods of one side until they have settled. mu guards its fields.
type settling struct {
	side *side
	mu   sync.Mutex
	// queue has the pods that have not been created yet, those that take the longest
	// to settle first.
	queue  []*corev1.Pod
	wanted map[string]bool
	acted  map[string]bool
	last   map[string]seen
}

// seen is an observed state of a pod, and since when it lasts.
type seen struct {
	pod   *corev1.Pod
	since time.Time
}

// settle creates the pods of both sides, waits until all have settled, and
// returns those that have not.
func settle(ctx context.Context, sides ...*side) (unsettled []string) {
	GinkgoHelper()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var courses []*settling
	for _, s := range sides {
		c := &settling{side: s, wanted: map[string]bool{}, acted: map[string]bool{}, last: map[string]seen{}}
		c.watch(watching)
		c.create(ctx)
		courses = append(courses, c)
	}
	for end := time.Now().Add(settleTimeout); time.Now().Before(end); {
		unsettled = nil
		for _, c := range courses {
			unsettled = append(unsettled, c.advance(ctx)...)
		}
		if len(unsettled) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return unsettled
		case <-time.After(200 * time.Millisecond):
		}
	}
	return unsettled
}

// watch follows the pods of the side.
func (c *settling) watch(ctx context.Context) {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(c.side.config)
	Expect(err).NotTo(HaveOccurred())
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(c.side.namespace))
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.see,
		UpdateFunc: func(_, pod any) { c.see(pod) },
	})
	Expect(err).NotTo(HaveOccurred())
	factory.Start(ctx.Done())
}

// create creates the objects that pods use, and queues the pods.
func (c *settling) create(ctx context.Context) {
	GinkgoHelper()
	pods, others := c.side.read()
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(b.Annotations[thenAnnotation], a.Annotations[thenAnnotation]) // "resync" is the last in the alphabet
	})
	for _, object := range others {
		Expect(c.side.client.Create(ctx, object)).To(Succeed())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods {
		c.wanted[pod.Name] = true
	}
	c.queue = pods
}

// see records a new state of a pod, after a check whether the previous state has
// lasted long enough.
func (c *settling) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := c.side.nameOf(pod)
	c.checkSettled(name)
	c.last[name] = seen{pod: pod, since: time.Now()}
}

// checkSettled reports whether the pod has settled, now or before.
func (c *settling) checkSettled(name string) bool {
	if c.side.settled[name] != nil {
		return true
	}
	last, known := c.last[name]
	if !known || time.Since(last.since) < restTime || !hasSettled(last.pod) ||
		last.pod.Annotations[thenAnnotation] != "" && !c.acted[name] {
		return false
	}
	c.side.settled[name] = last.pod
	return true
}

// advance creates pods and executes actions that are due, and returns the pods that
// have not settled.
func (c *settling) advance(ctx context.Context) (unsettled []string) {
	GinkgoHelper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.wanted {
		if !c.checkSettled(name) {
			unsettled = append(unsettled, c.side.describe(name, c.last[name]))
		}
		last := c.last[name].pod
		if last == nil || c.acted[name] {
			continue
		}
		then := last.Annotations[thenAnnotation]
		due := hasCondition(last, corev1.PodReady)
		switch then {
		case "open-gate":
			due = hasCondition(last, corev1.ContainersReady)
		case "resync":
			due = slices.ContainsFunc(slices.Concat(last.Status.InitContainerStatuses, last.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
				return s.RestartCount == 3 && s.State.Running == nil
			})
		}
		if then != "" && due {
			// The agent may have changed the pod meanwhile.
			c.acted[name] = actions[then](ctx, c.side.client, last.DeepCopy()) == nil
		}
	}
	busy := len(unsettled) - len(c.queue)
	c.queue = slices.DeleteFunc(c.queue, func(pod *corev1.Pod) bool {
		after := pod.Annotations[afterAnnotation]
		if busy >= maxBusy || after != "" && c.side.settled[after] == nil {
			return false
		}
		busy++
		c.side.begin(ctx, pod)
		return true
	})
	slices.Sort(unsettled)
	return unsettled
}

// begin gives the agent a pod to run.
func (s *side) begin(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	if pod.Annotations[staticAnnotation] == "" {
		Expect(s.client.Create(ctx, pod)).To(Succeed())
		return
	}
	pod.Spec.NodeName, pod.Spec.ServiceAccountName = "", "" // manifests of static pods do not set them
	content, err := yaml.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(s.Manifests, pod.Name+".yaml"), content, 0o600)).To(Succeed())
}

// nameOf returns the name of a pod in pods/. The name of a mirror pod ends with the
// node's name.
func (s *side) nameOf(pod *corev1.Pod) string {
	if pod.Annotations[staticAnnotation] == "" {
		return pod.Name
	}
	return strings.TrimSuffix(pod.Name, "-"+s.Node)
}

// describe describes a pod that has not settled.
func (s *side) describe(name string, last seen) string {
	if last.pod == nil {
		return s.namespace + "/" + name + " is not there"
	}
	status, err := json.Marshal(last.pod.Status)
	if err != nil {
		status = []byte(err.Error())
	}
	return fmt.Sprintf("%s/%s is since %s: %s", s.namespace, name, last.since.Format(time.TimeOnly), status)
}

// hasSettled reports whether a pod has the values of its annotation.
func hasSettled(pod *corev1.Pod) bool {
	settled := pod.Annotations[settledAnnotation]
	if settled == "" {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && isReady(pod)
	}
	fields, err := difference.Of(map[string]any{"status": pod.Status}, func(_, text string) string { return text })
	if err != nil {
		return false
	}
	for want := range strings.FieldsSeq(settled) {
		path, value, _ := strings.Cut(want, "=")
		if fields[path] != value {
			return false
		}
	}
	return true
}

func isReady(pod *corev1.Pod) bool { return hasCondition(pod, corev1.PodReady) }

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
