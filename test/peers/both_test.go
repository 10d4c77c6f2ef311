package peers

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// The compared objects, which are also the headings of differences.yaml.
const (
	aboutPods    = "pods"
	aboutEvents  = "events"
	aboutNodes   = "nodes"
	aboutServers = "servers"
)

var _ = Describe("svclet and the real kubelet, of the same pods on the same machine,", Ordered, ContinueOnFailure, func() {
	var (
		svclet, kubelet *side
		listed          difference.List
		unsettled       []string
	)
	BeforeAll(func(ctx SpecContext) {
		var err error
		listed, err = difference.ReadList("differences.yaml")
		Expect(err).NotTo(HaveOccurred())
		server := upSVC(ctx)
		cluster, err := server.Cluster()
		Expect(err).NotTo(HaveOccurred())
		svclet = newSide(ctx, launch.Svclet, cluster, server.Config)
		kubelet = newSide(ctx, launch.Kubelet, cluster, server.Config)
		unsettled = settle(ctx, svclet, kubelet)
	})

	It("end with the pods in the same state", func() { Expect(unsettled).To(BeEmpty()) })

	It("show the same statuses", func() {
		var found []difference.Difference
		for name, pod := range svclet.settled {
			theirs := kubelet.settled[name]
			if theirs == nil {
				continue // reported above
			}
			found = append(found, difference.Between(name, svclet.podFields(pod), kubelet.podFields(theirs))...)
		}
		expectListed(listed, aboutPods, found)
	})

	It("record the same events", func(ctx SpecContext) {
		ours, theirs := svclet.events(ctx), kubelet.events(ctx)
		var found []difference.Difference
		for name := range svclet.settled {
			if kubelet.settled[name] == nil {
				continue
			}
			found = append(found, difference.Between(name, ours[name], theirs[name])...)
		}
		expectListed(listed, aboutEvents, found)
	})

	It("show the same node", func(ctx SpecContext) {
		expectListed(listed, aboutNodes, difference.Between("node", svclet.node(ctx), kubelet.node(ctx)))
	})

	It("serve the same", func(ctx SpecContext) {
		var found []difference.Difference
		for _, served := range served {
			found = append(found, difference.Between(served.path, served.of(ctx, svclet), served.of(ctx, kubelet))...)
		}
		expectListed(listed, aboutServers, found)
	})
})

// expectListed fails for each difference that is not in the list, and for each entry of the list
// that was not found.
func expectListed(listed difference.List, about string, found []difference.Difference) {
	GinkgoHelper()
	unexplained, obsolete := difference.Check(found, listed[about])
	var text strings.Builder
	for _, d := range unexplained {
		fmt.Fprintf(&text, "not in the list: %s\n", d)
	}
	for _, e := range obsolete {
		fmt.Fprintf(&text, "in the list, but not so: of %q: %s: %s\n", e.Of, e.Path, e.Reason)
	}
	AddReportEntry(fmt.Sprintf("%d differences of %s are explained", len(found)-len(unexplained), about))
	if text.Len() > 0 {
		Fail("differences.yaml, " + about + ":\n" + text.String())
	}
}

// side is one of the two agents with its machine, node and namespace.
type side struct {
	*launch.Agent
	machine   *launch.Machine
	cluster   launch.Cluster
	config    *rest.Config
	client    ctrlclient.Client
	namespace string
	// hostPort is a free port for a pod.
	hostPort string
	// settled has the pods in the state in which they are compared.
	settled map[string]*corev1.Pod
}

func newSide(ctx context.Context, kind launch.AgentKind, cluster launch.Cluster, config *rest.Config) *side {
	GinkgoHelper()
	client := newClient(config)
	s := &side{cluster: cluster, config: config, client: client, namespace: "of-" + string(kind), settled: map[string]*corev1.Pod{}}
	Expect(client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
	var err error
	s.hostPort, err = launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	s.Agent, s.machine = startAgent(ctx, kind, cluster, client)
	Eventually(func() error {
		return client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.namespace, Name: "default"}, &corev1.ServiceAccount{})
	}).Should(Succeed())
	return s
}

// read returns the objects in pods/, for this side.
func (s *side) read() (pods []*corev1.Pod, others []ctrlclient.Object) {
	GinkgoHelper()
	files, err := filepath.Glob("pods/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	decoder := serializer.NewCodecFactory(s.client.Scheme(), serializer.EnableStrict).UniversalDeserializer()
	for _, file := range files {
		reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(strings.ReplaceAll(readFile(file), "HOSTPORT", s.hostPort))))
		for {
			document, err := reader.Read()
			if err != nil {
				break // end of the file
			}
			decoded, _, err := decoder.Decode(document, nil, nil)
			Expect(err).NotTo(HaveOccurred(), "%s:\n%s", file, document)
			object := decoded.(ctrlclient.Object)
			object.SetNamespace(s.namespace)
			if pod, ok := object.(*corev1.Pod); ok {
				pod.Spec.NodeName, pod.Spec.ServiceAccountName = s.Node, "default"
				pod.Spec.AutomountServiceAccountToken = new(bool)
				pods = append(pods, pod)
				continue
			}
			others = append(others, object)
		}
	}
	return pods, others
}

// The names that differ between the two sides, and their placeholders.
var (
	hexID     = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{32})\b`) // of the runtime, and of static pods
	timestamp = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
)

// neutral returns a function that replaces names, times, UIDs, addresses and
// identities in a text by placeholders.
func (s *side) neutral(pod *corev1.Pod) func(path, text string) string {
	names := []string{s.namespace, "NAMESPACE", s.PodLogs, "LOGS", s.machine.Dir, "DIR", s.machine.Bridge, "BRIDGE", s.hostPort, "HOSTPORT"}
	if pod != nil {
		names = append(names, string(pod.UID), "UID", pod.Name, s.nameOf(pod))
		for _, ip := range pod.Status.PodIPs {
			names = append(names, ip.IP, "POD-IP")
		}
	}
	replace := strings.NewReplacer(names...)
	return func(path, text string) string {
		if text == s.Node {
			return "NODE"
		}
		text = replace.Replace(text)
		text = hexID.ReplaceAllString(text, "ID")
		return timestamp.ReplaceAllStringFunc(text, func(at string) string {
			if strings.HasPrefix(at, "1970-01-01T00:00:00") {
				return at // a time that is unknown
			}
			return "TIME"
		})
	}
}

// podFields returns the fields of a pod that the agent writes.
func (s *side) podFields(pod *corev1.Pod) difference.Fields {
	GinkgoHelper()
	owners := slices.Clone(pod.OwnerReferences)
	for i := range owners {
		owners[i].Name, owners[i].UID = "NODE", "UID" // that of a mirror
	}
	fields, err := difference.Of(map[string]any{
		"labels": pod.Labels, "annotations": pod.Annotations, "owners": owners, "status": pod.Status,
	}, s.neutral(pod))
	Expect(err).NotTo(HaveOccurred())
	return fields
}

// events returns the events of each pod: the type, reason and message is the key,
// and the container is the value.
func (s *side) events(ctx context.Context) map[string]difference.Fields {
	GinkgoHelper()
	var list corev1.EventList
	Expect(s.client.List(ctx, &list, ctrlclient.InNamespace(s.namespace))).To(Succeed())
	all := map[string]difference.Fields{}
	for name, pod := range s.settled {
		all[name] = difference.Fields{}
		rewrite := s.neutral(pod)
		for i := range list.Items {
			e := &list.Items[i]
			ofPod := e.InvolvedObject.UID == pod.UID || string(e.InvolvedObject.UID) == pod.Annotations["kubernetes.io/config.hash"]
			if !ofPod || e.Source.Component != string(s.Kind) {
				continue
			}
			message := durations.ReplaceAllString(rewrite("", e.Message), "DURATION")
			all[name][fmt.Sprintf("%s %s: %s", e.Type, e.Reason, message)] = "of " + e.InvolvedObject.FieldPath
		}
	}
	return all
}

// durations matches the durations of pulls in event messages.
var durations = regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s)\b`)

// node returns the fields of the agent's Node.
func (s *side) node(ctx context.Context) difference.Fields {
	GinkgoHelper()
	var node corev1.Node
	Eventually(func(g Gomega) { // images are reported later
		g.Expect(s.client.Get(ctx, ctrlclient.ObjectKey{Name: s.Node}, &node)).To(Succeed())
		g.Expect(len(node.Status.Images)).To(BeNumerically(">=", len(images)))
	}).Should(Succeed())
	slices.SortFunc(node.Status.Images, func(a, b corev1.ContainerImage) int { return strings.Compare(a.Names[0], b.Names[0]) })
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	Expect(fmt.Sprint(port)).To(Equal(s.Port))
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 0
	fields, err := difference.Of(map[string]any{
		"labels": node.Labels, "annotations": node.Annotations, "finalizers": node.Finalizers,
		"spec": node.Spec, "status": node.Status,
	}, s.neutral(nil))
	Expect(err).NotTo(HaveOccurred())
	return fields
}
