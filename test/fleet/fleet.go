// Package fleet runs hundreds of node agents on one machine: each is a svclet
// process with its own fake container runtime, which serves CRI and runs no
// processes. All else is real: the agents register their nodes, watch, pull, mount,
// write statuses and serve. It needs root on Linux.
//
//	f, err := fleet.Start(ctx, server.Config, cluster, "bin/svclet", 200)
//	defer f.Stop()
//	...                              // until f.ReadyNodes() is 200
//	err = f.Deploy(ctx, 2000)        // until f.ReadyPods() is 2000
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/svclet/runtime/runtimetest"
	"svc.dev/svc/test/launch"
)

// image is the image of the pods, which every runtime has.
const image = "localhost/svc/fleet:1"

// Fleet is a number of nodes, and a view of the cluster that they are in.
type Fleet struct {
	client kubernetes.Interface
	dir    string
	agents []*agent
	// deployments is the number of deployments created so far.
	deployments int
	pods        cache.Store
	nodes       cache.Store
	watching    context.CancelFunc
	watches     informers.SharedInformerFactory
}

// agent is the agent of one node.
type agent struct {
	*launch.Agent
	dir     string
	runtime *runtimetest.Runtime
	// logs are the logs of its processes that have ended.
	logs []string
}

// Start starts n agents, svclet processes of a program, in a cluster.
// config is that of an administrator. It returns when the agents run. The caller
// stops them with Stop, also after an error.
func Start(ctx context.Context, config *rest.Config, cluster launch.Cluster, program string, n int) (*Fleet, error) {
	f := &Fleet{}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	var err error
	if f.client, err = kubernetes.NewForConfig(config); err != nil {
		return f, err
	}
	if f.dir, err = launch.TempDir(); err != nil {
		return f, err
	}
	ports, err := launch.FreePorts(n)
	if err != nil {
		return f, err
	}
	f.watch(ctx)
	for i := range n {
		if err := f.add(cluster, program, fmt.Sprintf("fleet-%03d", i), ports[i]); err != nil {
			return f, err
		}
	}
	return f, f.each(func(a *agent) error { return a.Start() })
}

// add creates an agent, without starting it, and its runtime.
func (f *Fleet) add(cluster launch.Cluster, program, name, port string) error {
	a := &agent{dir: filepath.Join(f.dir, name)}
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		return err
	}
	var err error
	if a.runtime, err = runtimetest.Start(runtimetest.Options{
		Socket: filepath.Join(a.dir, "cri"), Name: "containerd", Images: []string{image},
	}); err != nil {
		return err
	}
	f.agents = append(f.agents, a)
	if a.Agent, err = launch.MachineAt(a.dir, a.runtime.Endpoint()).NewAgent(launch.Svclet, program, name); err != nil {
		return err
	}
	a.Port = port
	// The nodes share one machine, so they must not use its cgroups, swap and inotify
	// instances (a user has 128).
	a.Fields = map[string]any{
		"cgroupRoot": "", "cgroupsPerQOS": false, "staticPodPath": "", "enforceNodeAllocatable": []string{"none"}, "failSwapOn": false, "oomScoreAdj": 0,
	}
	if err := isolate(a.Agent, filepath.Join(a.dir, "links")); err != nil {
		return err
	}
	return a.Configure(cluster)
}

// watch starts informers of the cluster's nodes and the fleet's pods.
func (f *Fleet) watch(ctx context.Context) {
	ctx, f.watching = context.WithCancel(ctx)
	f.watches = informers.NewSharedInformerFactory(f.client, 0)
	f.pods = f.watches.Core().V1().Pods().Informer().GetStore()
	f.nodes = f.watches.Core().V1().Nodes().Informer().GetStore()
	f.watches.Start(ctx.Done())
}

// each calls do for all agents in parallel.
func (f *Fleet) each(do func(*agent) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(f.agents))
	for i, a := range f.agents {
		group.Go(func() {
			if err := do(a); err != nil {
				errs[i] = fmt.Errorf("%s: %w", a.Node, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Stop sends SIGTERM to the agents and removes their files. It returns an error for
// agents that do not exit cleanly.
func (f *Fleet) Stop() error {
	errs := []error{f.each(func(a *agent) error {
		defer a.runtime.Close()
		if a.Agent == nil || a.Process == nil {
			return nil
		}
		code, err := a.Stop(launch.Patience)
		if err == nil && code != 0 {
			err = fmt.Errorf("it ended with exit code %d\n%s", code, a.Output())
		}
		a.logs = append(a.logs, a.Output())
		a.Process = nil
		return err
	})}
	if f.watching != nil {
		f.watching()
		f.watches.Shutdown()
	}
	if f.dir != "" {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}

// Pids returns the agents' process IDs. Each leads its own process group.
func (f *Fleet) Pids() []int {
	var pids []int
	for _, a := range f.agents {
		pids = append(pids, a.Pid())
	}
	return pids
}

// KillAndRestart kills (SIGKILL) every agent and starts it again with the same
// files. The runtimes keep running.
func (f *Fleet) KillAndRestart() error {
	return f.each(func(a *agent) error {
		a.Kill()
		a.logs = append(a.logs, a.Output())
		return a.Start()
	})
}

// Errors returns the lines of the agents' logs with errors. It leaves out timeouts of
// the API server: hundreds of processes that start at once share a few CPUs.
func (f *Fleet) Errors() []string {
	var lines []string
	for _, a := range f.agents {
		logs := slices.Clone(a.logs)
		if a.Process != nil {
			logs = append(logs, a.Output())
		}
		for line := range strings.Lines(strings.Join(logs, "")) {
			if isError(line) && !isLate(line) {
				lines = append(lines, a.Node+": "+strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// isError reports whether a line is one that klog writes about an error, or the
// beginning of a panic.
func isError(line string) bool {
	return len(line) > 5 && line[0] == 'E' && strings.Trim(line[1:5], "0123456789") == "" ||
		strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")
}

// isLate reports whether a line is about a request to the API server that has taken
// too long.
func isLate(line string) bool {
	return !strings.Contains(line, "rpc error") && slices.ContainsFunc([]string{
		"context deadline exceeded", "TLS handshake timeout", "did not answer in time", "within requested timeout",
	}, func(text string) bool { return strings.Contains(line, text) })
}

// HeldPods returns the number of pods of which the runtimes have a sandbox or
// container.
func (f *Fleet) HeldPods() int {
	held := 0
	for _, a := range f.agents {
		held += len(a.runtime.Pods())
	}
	return held
}

// Calls counts the requests of a method to all runtimes so far.
func (f *Fleet) Calls(method string) int {
	calls := 0
	for _, a := range f.agents {
		calls += a.runtime.Calls(method)
	}
	return calls
}

// LeftDirs returns the existing directories of pods and their logs, and links to
// these.
func (f *Fleet) LeftDirs() ([]string, error) {
	var left []string
	for _, a := range f.agents {
		for _, pattern := range []string{
			filepath.Join(a.dir, "agent", "pods", "*"), filepath.Join(a.PodLogs, "*"), filepath.Join(a.dir, "links", "*"),
		} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				return nil, err
			}
			left = append(left, found...)
		}
	}
	return left, nil
}

// ReadyNodes returns the number of nodes that are ready in the API.
func (f *Fleet) ReadyNodes() int {
	ready := 0
	for _, obj := range f.nodes.List() {
		for _, c := range obj.(*corev1.Node).Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready
}
