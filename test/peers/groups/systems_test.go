package groups

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

const (
	gates = "--feature-gates=GenericWorkload=true"
	kinds = "--runtime-config=scheduling.k8s.io/v1beta1=true"
	// withoutPlugins are those whose effects only controllers undo.
	withoutPlugins = "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection,PodGroupProtection,TaintNodesByCondition"
)

// configuration is that of both schedulers: pods are retried soon.
const configuration = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
`

// system is a server with a scheduler.
type system struct {
	name   string
	client kubernetes.Interface
	// begins starts the scheduler.
	begins    func() (*launch.Process, error)
	scheduler *launch.Process
	// place is the namespace of the scenario, and places how many there were.
	place  string
	places int
}

// classes are the priority classes of the scenarios. Pods of "patient" preempt none.
var classes = map[string]int32{"high": 1000, "patient": 1000, "middle": 500, "low": 100}

// start starts svc's server with its own scheduler, and another with kube-scheduler.
func start(t *testing.T) []*system {
	t.Helper()
	program, err := launch.Peer("kube-scheduler-1.37")
	if err != nil {
		t.Fatal(err)
	}
	var servers []*launch.Server
	for range 2 {
		server, err := launch.Up(t.Context(), t.TempDir(), launch.WithoutControllers("--release=1.37", gates, kinds, withoutPlugins)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Kill)
		servers = append(servers, server)
	}
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	kubeconfig := servers[1].Kubeconfig
	for file, text := range map[string]string{
		config:           configuration,
		config + ".kube": configuration + fmt.Sprintf("leaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: %q, qps: 1000, burst: 1000}\n", kubeconfig),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []*system{
		newSystem(t, "svc", servers[0], func() (*launch.Process, error) {
			return servers[0].StandbyManager("--leader-elect=false", "--controllers=scheduler", "--scheduler-config="+config, gates)
		}),
		newSystem(t, "kube", servers[1], func() (*launch.Process, error) {
			return launch.Start(nil, program, "--config="+config+".kube", "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--secure-port=0", "-v=4", gates)
		}),
	}
}

func newSystem(t *testing.T, name string, server *launch.Server, begins func() (*launch.Process, error)) *system {
	t.Helper()
	server.Config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range classes {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if name == "patient" {
			class.PreemptionPolicy = ptr.To(corev1.PreemptNever)
		}
		if _, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := &system{name: name, client: client, begins: begins}
	if s.scheduler, err = begins(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	return s
}

// end ends the scheduler, and writes what it has logged into the directory $LOGS, if set.
func (s *system) end(t *testing.T) {
	if s.scheduler == nil {
		return
	}
	s.scheduler.Kill()
	if dir := os.Getenv("LOGS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, s.name+".log"), []byte(s.scheduler.Output()), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// begin creates the namespace of a scenario.
func (s *system) begin(ctx context.Context) error {
	s.places++
	s.place = fmt.Sprintf("s%03d", s.places)
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.place}}, metav1.CreateOptions{})
	return err
}

// cleanUp deletes what a scheduler considers.
func (s *system) cleanUp(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	if err := s.client.CoreV1().Pods(s.place).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := s.client.SchedulingV1beta1().PodGroups(s.place).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := s.client.PolicyV1().PodDisruptionBudgets(s.place).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := s.removeDevices(ctx); err != nil {
		return err
	}
	return s.client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{})
}

// view is what a system consists of.
type view struct {
	pods   []corev1.Pod
	groups []schedulingv1beta1.PodGroup
	claims []resourcev1.ResourceClaim
	events []corev1.Event
	text   *strings.Replacer
}

func (s *system) view(ctx context.Context) (*view, error) {
	var exited <-chan struct{}
	if s.scheduler != nil {
		exited = s.scheduler.Exited()
	}
	select {
	case <-exited:
		return nil, fmt.Errorf("%s: the scheduler has ended:\n%s", s.name, s.scheduler.Output())
	default:
	}
	pods, err := s.client.CoreV1().Pods(s.place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	groups, err := s.client.SchedulingV1beta1().PodGroups(s.place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	claims, err := s.client.ResourceV1().ResourceClaims(s.place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, err := s.client.CoreV1().Events(s.place).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pairs := []string{s.place, "PLACE"}
	for _, p := range pods.Items {
		pairs = append(pairs, string(p.UID), "UID of "+p.Name)
	}
	for _, g := range groups.Items {
		pairs = append(pairs, string(g.UID), "UID of group "+g.Name)
	}
	return &view{pods.Items, groups.Items, claims.Items, events.Items, strings.NewReplacer(pairs...)}, nil
}

// node matches the names of nodes: of nodes that are equal, a scheduler chooses any.
var node = regexp.MustCompile(`\bany-[a-z]\b`)

func (v *view) said(text string) string { return node.ReplaceAllString(v.text.Replace(text), "NODE") }

// objects returns what a scheduler writes of each object.
func objects(v *view) map[string]difference.Fields {
	all := map[string]difference.Fields{}
	for _, p := range v.pods {
		f := difference.Fields{"exists": "true"}
		f["node"], f["nominated"] = v.said(p.Spec.NodeName), v.said(p.Status.NominatedNodeName)
		if p.DeletionTimestamp != nil {
			f["deleted"] = "true"
		}
		for _, c := range p.Status.Conditions {
			f["conditions["+string(c.Type)+"]"] = v.said(fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message))
		}
		all["pod "+p.Name] = f
	}
	for _, g := range v.groups {
		f := difference.Fields{"exists": "true"}
		for _, c := range g.Status.Conditions {
			f["conditions["+c.Type+"]"] = v.said(fmt.Sprint(c.Status, " ", c.Reason, ": ", c.Message))
		}
		all["group "+g.Name] = f
	}
	for _, c := range v.claims {
		all["claim "+c.Name] = difference.Fields{"allocated": fmt.Sprint(c.Status.Allocation != nil), "consumers": fmt.Sprint(len(c.Status.ReservedFor))}
	}
	return all
}

// events returns what has been said, whether once or several times.
func events(v *view) map[string]difference.Fields {
	f := difference.Fields{}
	for _, e := range v.events {
		f[fmt.Sprintf("%s %s: %s: %s (%s)", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, v.said(e.Message), e.Type)] = "said"
	}
	return map[string]difference.Fields{"events": f}
}
