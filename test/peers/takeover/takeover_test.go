// Package takeover tests that Kubernetes' own controller manager and scheduler take over
// each controller from svc and give it back, in the middle of its work.
package takeover

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/simulate"
)

var (
	only = flag.String("of", "", "regular expression of the controllers that are taken over; all when empty")
	own  = flag.Bool("own", false, "let a second manager of svc take over, in place of Kubernetes' programs")
)

// taken is a controller that is taken over, by its names, or several.
type taken struct{ svc, kube string }

var controllers = []taken{
	{"deployment", "deployment-controller"},
	{"replicaset", "replicaset-controller"},
	{"statefulset", "statefulset-controller"},
	{"daemonset", "daemonset-controller"},
	{"job", "job-controller"},
	{"cronjob", "cronjob-controller"},
	{"endpointslice", "endpointslice-controller"},
	{"endpoint", "endpoints-controller"},
	{"garbagecollector", "garbage-collector-controller"},
	{"namespace", "namespace-controller"},
	{"disruption", "disruption-controller"},
	{"persistentvolume-binder", "persistentvolume-binder-controller"},
	{"nodelifecycle", "node-lifecycle-controller"},
	{"resourcequota", "resourcequota-controller"},
	{"replicationcontroller", "replicationcontroller-controller"},
	{"serviceaccount", "serviceaccount-controller"},
	{"serviceaccount-token", "serviceaccount-token-controller"},
	{"root-ca-cert-publisher", "root-ca-certificate-publisher-controller"},
	{"ttl-after-finished", "ttl-after-finished-controller"},
	{"horizontalpodautoscaler", "horizontal-pod-autoscaler-controller"},
	{"endpointslicemirroring", "endpointslice-mirroring-controller"},
	{"ephemeralvolume", "ephemeral-volume-controller"},
	{"pvcprotection", "persistentvolumeclaim-protection-controller"},
	{"pvprotection", "persistentvolume-protection-controller"},
	{"tainteviction", "taint-eviction-controller"},
	{"clusterroleaggregation", "clusterrole-aggregation-controller"},
	{"ttl", "ttl-controller"},
	{"resourceclaim", "resourceclaim-controller"},
	{"resourcepoolstatusrequest", "resourcepoolstatusrequest-controller"},
	{"servicecidr", "service-cidr-controller"},
	{"attachdetach", "persistentvolume-attach-detach-controller"},
	{"persistentvolume-expander", "persistentvolume-expander-controller"},
	{"vacprotection", "volumeattributesclass-protection-controller"},
	{"podgc", "pod-garbage-collector-controller"},
	{"nodeipam", "node-ipam-controller"},
	{"devicetainteviction", "device-taint-eviction-controller"},
	{"csrapproving", "certificatesigningrequest-approving-controller"},
	{"csrsigning", "certificatesigningrequest-signing-controller"},
	{"bootstrapsigner", "bootstrap-signer-controller"},
	{"tokencleaner", "token-cleaner-controller"},
	{"kube-apiserver-serving-clustertrustbundle-publisher", "kube-apiserver-serving-clustertrustbundle-publisher-controller"},
	{"validatingadmissionpolicy-status", "validatingadmissionpolicy-status-controller"},
	// That of kube-controller-manager migrates what its garbage collector has read.
	{"storageversionmigrator,garbagecollector", "storage-version-migrator-controller,garbage-collector-controller"},
	{"scheduler", "kube-scheduler"},
}

// gates are the features of controllers that release 1.36 has off by default, and kinds their
// kinds.
const (
	gates = "--feature-gates=ClusterTrustBundle=true,DRAResourcePoolStatus=true,StorageVersionMigrator=true"
	kinds = "--runtime-config=certificates.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true,storagemigration.k8s.io/v1beta1=true"
)

// machines is the number of simulated nodes.
const machines = 4

// TestControllersAreTakenOver changes all workloads again and again. In the middle of each
// change the programs that run the controllers are killed, and the next ones go on: svc,
// Kubernetes' own for one of the controllers, and svc again.
func TestControllersAreTakenOver(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("it uses the binary that $SVC names, and Kubernetes' own: run make test-peers-takeover")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	server, err := launch.Up(t.Context(), t.TempDir(), "--release=1.36", "--controllers=", launch.NoServiceAccounts, gates, kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	server.Config.WarningHandler = rest.NoWarnings{} // about Endpoints
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := simulate.StartBeating(server.Config, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nodes.Stop)
	for i := range machines {
		if err := nodes.Add(t.Context(), fmt.Sprintf("node-%d", i), managed); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(*corev1.Node){taintedNode: taint, crowded: crowd} {
		if err := nodes.Add(t.Context(), name, change); err != nil {
			t.Fatal(err)
		}
	}
	node, err := asNode(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{server: server, work: &work{client: client, node: node, seen: newRecord()}}
	t.Cleanup(r.kill)
	if err := r.startSVC(all); err != nil {
		t.Fatal(err)
	}
	if err := r.work.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.settle(t, "at the beginning")
	for _, c := range controllers {
		if !pattern.MatchString(c.svc) {
			continue
		}
		r.change(t, c.kube+" takes over", func() error {
			if err := r.startSVC(without(c.svc)); err != nil {
				return err
			}
			if *own {
				return r.startSVC(c.svc)
			}
			return r.startKube(c.kube)
		})
		r.change(t, c.svc+" takes over again", func() error { return r.startSVC(all) })
	}
	for _, violation := range r.work.seen.all() {
		t.Error(violation)
	}
	t.Logf("%d changes", r.work.round)
}

// run is the server with the programs that run its controllers.
type run struct {
	server  *launch.Server
	running []*launch.Process
	work    *work
}

// all are all controllers, with those on demand.
const all = "*,bootstrapsigner,tokencleaner"

// without returns all controllers but those of a list.
func without(list string) string {
	rest := strings.Split(all, ",")
	for _, name := range strings.Split(list, ",") {
		if i := slices.Index(rest, name); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			rest = append(rest, "-"+name)
		}
	}
	return strings.Join(rest, ",")
}

// common are the flags of both managers: the keys of the cluster, the gates, a period of the
// autoscaler for which a round does not wait, the ranges of nodes, and the number of pods
// that are kept.
func (r *run) common() []string {
	pki := datadir.Dir(r.server.DataDir).PKI()
	return []string{
		"--leader-elect=false", "--root-ca-file=" + filepath.Join(pki, "ca.crt"), "--service-account-private-key-file=" + filepath.Join(pki, "sa.key"),
		"--cluster-signing-cert-file=" + filepath.Join(pki, "ca.crt"), "--cluster-signing-key-file=" + filepath.Join(pki, "ca.key"),
		gates, "--horizontal-pod-autoscaler-sync-period=1s", "--allocate-node-cidrs=true", "--cluster-cidr=10.220.0.0/20",
		"--terminated-pod-gc-threshold=" + strconv.Itoa(keptPods),
	}
}

// startSVC starts svc's controllers.
func (r *run) startSVC(controllers string) error {
	p, err := r.server.StandbyManager(append(r.common(), "--controllers="+controllers)...)
	if err == nil {
		r.running = append(r.running, p)
	}
	return err
}

// startKube starts one controller of Kubernetes.
func (r *run) startKube(controller string) error {
	program, flags := "kube-controller-manager", append(r.common(), "--controllers="+controller)
	if controller == "kube-scheduler" {
		program, flags = controller, []string{"--leader-elect=false"}
	}
	path, err := launch.Peer(program)
	if err != nil {
		return err
	}
	kubeconfig := r.server.Kubeconfig
	p, err := launch.Start(nil, path, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
	}, flags...)...)
	if err == nil {
		r.running = append(r.running, p)
	}
	return err
}

// kill ends all controllers at once.
func (r *run) kill() {
	for _, p := range r.running {
		p.Kill()
	}
	r.running = nil
}

// change changes all workloads, replaces the programs in the middle of it, and waits until
// the change is complete.
func (r *run) change(t *testing.T, what string, next func() error) {
	t.Helper()
	began := time.Now()
	err := r.work.change(t.Context())
	logs := r.logs()
	r.kill()
	if err == nil {
		err = next()
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, logs)
	}
	r.settle(t, what)
	t.Logf("%s: complete after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// settle waits until all workloads are as they are to be.
func (r *run) settle(t *testing.T, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), launch.Patience)
	defer cancel()
	var last error
	if err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, p := range r.running {
			select {
			case <-p.Exited():
				return false, fmt.Errorf("a controller manager has ended")
			default:
			}
		}
		err := r.work.complete(ctx)
		if ctx.Err() == nil {
			last = err // else it is that there was no time
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v: %v\n%v\n%s", what, err, last, r.work.seen.all(), r.logs())
	}
}

// logs returns the ends of the programs' logs; $LOGS, if set, is a directory for all.
func (r *run) logs() string {
	const most = 4_000
	var text string
	for i, p := range r.running {
		log := p.Output()
		if dir := os.Getenv("LOGS"); dir != "" {
			// The logs help to find a failure; they are not part of the test.
			_ = os.WriteFile(filepath.Join(dir, fmt.Sprintf("round-%d-%d.log", r.work.round, i)), []byte(log), 0o600)
		}
		text += "...\n" + log[max(0, len(log)-most):] + "\n"
	}
	return text
}
