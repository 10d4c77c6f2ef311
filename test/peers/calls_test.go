package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/csi/csitest"
	"svc.dev/svc/svclet/devices/devicetest"
	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// aboutCalls is the heading of differences.yaml of the calls that drivers and plugins get.
const aboutCalls = "calls"

const (
	csiDriver = "peers.csi.example"
	gpus      = "peers.example/gpu"
)

var _ = Describe("svclet and the real kubelet, of the same CSI driver and device plugin,", func() {
	It("make the same calls", func(ctx SpecContext) {
		listed, err := difference.ReadList("differences.yaml")
		Expect(err).NotTo(HaveOccurred())
		server := upSVC(ctx)
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		Expect(newClient(server.Config).Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiDriver}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: new(bool), PodInfoOnMount: new(true), FSGroupPolicy: new(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		}})).To(Succeed())
		var of [2]map[string]difference.Fields
		for i, kind := range []launch.AgentKind{launch.Svclet, launch.Kubelet} {
			of[i] = newPluginSide(ctx, newSide(ctx, kind, cluster, server.Config)).run(ctx)
		}
		var found []difference.Difference
		for name := range of[0] {
			found = append(found, difference.Between(name, of[0][name], of[1][name])...)
		}
		expectListed(listed, aboutCalls, found)
	})
})

// pluginSide is an agent with a CSI driver and a device plugin, which record the calls that
// they get.
type pluginSide struct {
	*side
	csi, devices recorder
}

// recorder records calls.
type recorder struct {
	mu    sync.Mutex
	calls []call
}

// call is a call of a plugin, as JSON.
type call struct{ method, request string }

// questions are calls that change nothing. The agents make them at different times: svclet asks
// for capabilities once, when the driver registers.
var questions = []string{"NodeGetCapabilities", "NodeGetInfo", "NodeGetVolumeStats"}

func (r *recorder) called(method string, request any) {
	defer GinkgoRecover()
	content, err := json.Marshal(request)
	Expect(err).NotTo(HaveOccurred())
	if slices.Contains(questions, method) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{method, string(content)})
}

// take returns the calls so far, and forgets them.
func (r *recorder) take() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.calls
	r.calls = nil
	return taken
}

// methods returns the methods that have been called.
func (r *recorder) methods() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, c := range r.calls {
		all = append(all, c.method)
	}
	return all
}

// counts returns how often each method has been called.
func counts(methods []string) map[string]int {
	all := map[string]int{}
	for _, method := range methods {
		all[method]++
	}
	return all
}

func newPluginSide(ctx context.Context, s *side) *pluginSide {
	GinkgoHelper()
	p := &pluginSide{side: s}
	own := filepath.Join(s.machine.Dir, "csi")
	Expect(os.MkdirAll(filepath.Join(own, "devices"), 0o755)).To(Succeed())
	device, detach, err := launch.LoopDevice(ctx, filepath.Join(own, "disk"), 1<<20)
	if err != nil {
		Skip(err.Error())
	}
	DeferCleanup(detach)
	Expect(os.Symlink(device, filepath.Join(own, "devices", "disk"))).To(Succeed())
	driver, err := csitest.Start(csitest.Options{
		Name: csiDriver, NodeID: "here", Registry: filepath.Join(s.machine.AgentDir(), "plugins_registry"), Dir: own, Called: p.csi.called,
		Capabilities: []spec.NodeServiceCapability_RPC_Type{
			spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_EXPAND_VOLUME, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		},
		Mount: bindMount, Unmount: unbind,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(driver.Stop)
	plugin, err := devicetest.Start(devicetest.Options{
		Resource: gpus, Devices: []string{"a", "b", "c", "d"}, Registry: filepath.Join(s.machine.AgentDir(), "plugins_registry"),
		Dir: filepath.Join(s.machine.Dir, "gpu"), Called: p.devices.called,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plugin.Stop)
	Eventually(func(g Gomega) {
		node, csiNode := &corev1.Node{}, &storagev1.CSINode{}
		g.Expect(s.client.Get(ctx, ctrlclient.ObjectKey{Name: s.Node}, node)).To(Succeed())
		g.Expect(s.client.Get(ctx, ctrlclient.ObjectKey{Name: s.Node}, csiNode)).To(Succeed())
		g.Expect(node.Status.Allocatable).To(HaveKeyWithValue(corev1.ResourceName(gpus), resource.MustParse("4")))
		g.Expect(csiNode.Spec.Drivers).To(HaveLen(1))
	}).Should(Succeed())
	return p
}

// bindMount mounts a directory or a device.
func bindMount(source, target string) error {
	info, err := os.Stat(source)
	if err == nil && info.IsDir() {
		err = os.MkdirAll(target, 0o750)
	}
	if err != nil {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func unbind(target string) error {
	if err := unix.Unmount(target, 0); err != nil {
		return err
	}
	return os.Remove(target)
}

// run runs each pod of plugins/ until it is deleted, and returns the calls by its name.
func (p *pluginSide) run(ctx context.Context) map[string]difference.Fields {
	GinkgoHelper()
	// Registrations are repeated until the agent's Node exists, in any order of their calls.
	registration := slices.Concat(p.csi.take(), p.devices.take())
	slices.SortFunc(registration, func(a, b call) int { return strings.Compare(a.method+a.request, b.method+b.request) })
	all := map[string]difference.Fields{"registration": p.fields(nil, slices.Compact(registration))}
	for _, pod := range p.create(ctx) {
		Expect(p.client.Create(ctx, pod)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(p.client.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), pod)).To(Succeed())
			g.Expect(isReady(pod)).To(BeTrue(), "%v", pod.Status)
		}).Should(Succeed())
		if pod.Labels["then"] == "expand" {
			p.expand(ctx, pod)
		}
		Expect(p.client.Delete(ctx, pod)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(p.client.Get(ctx, ctrlclient.ObjectKeyFromObject(pod), &corev1.Pod{}))
		}).Should(BeTrue())
		Eventually(func(g Gomega) {
			made := counts(p.csi.methods())
			g.Expect(made["NodeUnpublishVolume"]).To(BeNumerically(">=", made["NodePublishVolume"]))
			g.Expect(made["NodeUnstageVolume"]).To(BeNumerically(">=", made["NodeStageVolume"]))
		}).Should(Succeed())
		all[pod.Name] = p.fields(pod, slices.Concat(p.csi.take(), p.devices.take()))
	}
	return all
}

// create creates the objects of plugins.yaml, and returns the pods.
func (p *pluginSide) create(ctx context.Context) []*corev1.Pod {
	GinkgoHelper()
	var pods []*corev1.Pod
	decoder := serializer.NewCodecFactory(p.client.Scheme(), serializer.EnableStrict).UniversalDeserializer()
	manifests := strings.NewReplacer("NAMESPACE", p.namespace, "NODE", p.Node).Replace(readFile("plugins.yaml"))
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return pods
		}
		Expect(err).NotTo(HaveOccurred())
		decoded, _, err := decoder.Decode(document, nil, nil)
		Expect(err).NotTo(HaveOccurred(), "%s", document)
		object := decoded.(ctrlclient.Object)
		if pod, ok := object.(*corev1.Pod); ok {
			pod.Namespace, pod.Spec.NodeName, pod.Spec.AutomountServiceAccountToken = p.namespace, p.Node, new(bool)
			pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
			pods = append(pods, pod)
			continue
		}
		Expect(p.client.Create(ctx, object)).To(Succeed())
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			Eventually(func(g Gomega) {
				g.Expect(p.client.Get(ctx, ctrlclient.ObjectKeyFromObject(claim), claim)).To(Succeed())
				g.Expect(claim.Status.Phase).To(Equal(corev1.ClaimBound))
			}).Should(Succeed())
		}
	}
}

// expand expands the volume of a pod, as a controller of the driver does.
func (p *pluginSide) expand(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName + "-" + p.Node}}
	Expect(p.client.Get(ctx, ctrlclient.ObjectKeyFromObject(volume), volume)).To(Succeed())
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	Expect(p.client.Update(ctx, volume)).To(Succeed())
	Eventually(p.csi.methods).WithTimeout(configTimeout).Should(ContainElement("NodeExpandVolume"))
}

// fields returns the order of calls, and the fields of each, by its method and number.
func (p *pluginSide) fields(pod *corev1.Pod, calls []call) difference.Fields {
	GinkgoHelper()
	neutral := p.neutral(pod)
	all, order := difference.Fields{}, []string{}
	for _, c := range calls {
		var request map[string]any
		Expect(json.Unmarshal([]byte(c.request), &request)).To(Succeed())
		for _, list := range []string{"devices_ids", "available_deviceIDs", "must_include_deviceIDs"} {
			sortLists(request, list)
		}
		p.add(all, fmt.Sprintf("%s %d", c.method, counts(order)[c.method]), request, func(path, text string) string {
			return strings.ReplaceAll(neutral(path, text), p.Node, "NODE")
		})
		order = append(order, c.method)
	}
	all["calls"] = strings.Join(order, " ")
	return all
}

// sortLists sorts the lists of a name in a request, of which the order means nothing.
func sortLists(value any, name string) {
	switch v := value.(type) {
	case map[string]any:
		if list, ok := v[name].([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		for _, inner := range v {
			sortLists(inner, name)
		}
	case []any:
		for _, inner := range v {
			sortLists(inner, name)
		}
	}
}
