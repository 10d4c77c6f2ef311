package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A contest compares two systems by its measures. It takes place if at least one
// of its measures is selected.
type contest struct {
	name     string
	systems  func(options) ([]system, error)
	measures []measure
}

func contests() []contest {
	return []contest{
		{"apiserver", apiServers, []measure{
			{"binary", measureBinary},
			{"start", measureStart},
			{"idle", measureIdle},
			{"first", measureFirst},
			{"restart", measureRestart},
			{"configmaps", measureConfigMaps},
			{"pods", measurePods},
			{"list", measureLists},
			{"watch", measureWatches},
			{"fanout", measureFanOut},
			{"memory", measureMemory},
		}},
		{"admission", serversWithoutAdmission, []measure{
			{"admission", measureWithoutAdmission},
		}},
		{"plugins", serversWithAllPlugins, []measure{
			{"plugins", measurePlugins},
		}},
		{"controllers", controllerManagers, []measure{
			{"managers", measureManagers},
			{"schedule", measureScheduling},
			{"rollout", measureRollout},
			{"namespace", measureNamespace},
			{"namespaces", measureNamespaces},
			{"collect", measureCollection},
			{"stateful", measureStateful},
			{"daemons", measureDaemons},
			{"cronjobs", measureCronJobs},
			{"autoscalers", measureAutoscalers},
			{"claims", measureClaims},
			{"preempt", measurePreemption},
		}},
		{"costs", costedManagers, []measure{
			{"costs", measureCosts},
		}},
		{"large", controllerManagers, []measure{
			{"large", measureLargeScheduling},
			{"massnamespace", measureMassNamespace},
			{"masscollect", measureMassCollection},
			{"masspods", measureMassPods},
		}},
		{"scale", apiServers, []measure{
			{"crds", measureDefinitions},
			{"objects", measureObjects},
			{"quiet", measureIdleWatches},
			{"relist", measureRelist},
		}},
		{"growth", apiServers, []measure{
			{"growth", measureGrowth},
		}},
		{"servers", serversOnOneEtcd, []measure{
			{"servers", measureServers},
		}},
		{"nodes", apiServers, []measure{
			{"nodes", measureCrowd},
		}},
		{"nodespods", apiServers, []measure{
			{"nodespods", measureManyNodesAndPods},
		}},
		{"cluster", wholeClusters, []measure{
			{"fleet", measureFleet},
			{"cluster", measureScheduledCrowd},
		}},
		{"aggregated", hostedFleets, []measure{
			{"aggregated", measureAggregated},
		}},
		{"agents", agents, []measure{
			{"agent", measureAgent},
			{"podstart", measurePodStarts},
			{"podrestart", measurePodRestarts},
			{"podidle", measureAgentWithPods},
			{"podmass", measureFullNode},
		}},
		{"evictions", agentsOnSmallDisks, []measure{
			{"podevict", measureEvictions},
		}},
	}
}

// binaries returns the paths of the systems' binaries by their flags.
func (o *options) binaries() map[string]*string {
	return map[string]*string{
		"svc": &o.svc, "kube-apiserver": &o.kubeAPIServer, "etcd": &o.etcd,
		"kube-controller-manager": &o.kubeControllerManager, "kube-scheduler": &o.kubeScheduler,
		"svclet": &o.svclet, "kubelet": &o.kubelet,
	}
}

// install copies the binaries into a directory, and lets the flags name the copies, which are
// read from the disk when they start, as after a boot: how many pages of a program are mapped,
// which its RSS has, depends on how its file came into the page cache
// (docs/decisions/unreachable-methods.md). A file that does not exist is left to need.
func (o *options) install(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for flag, file := range o.binaries() {
		if *file == "" {
			continue
		}
		target := filepath.Join(dir, flag)
		switch err := installCopy(*file, target); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		*file = target
	}
	return nil
}

func installCopy(source, target string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, uncache(out), out.Close())
}

// need checks that binaries exist, and makes their paths absolute.
func (o *options) need(flags ...string) error {
	var errs []error
	for _, flag := range flags {
		file := o.binaries()[flag]
		var err error
		if *file, err = filepath.Abs(*file); err == nil {
			_, err = os.Stat(*file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w (make bench builds it)", flag, err))
		}
	}
	return errors.Join(errs...)
}

var errNothing = errors.New("the binaries of both systems are empty: nothing to measure")

// apiServers returns svc and kube-apiserver, each with its etcd.
func apiServers(o options) ([]system, error) {
	var systems []system
	if o.svc != "" {
		if err := o.need("svc"); err != nil {
			return nil, err
		}
		s, err := newSVC(o.svc)
		if err != nil {
			return nil, err
		}
		systems = append(systems, s)
	}
	if o.kubeAPIServer != "" {
		if err := o.need("kube-apiserver", "etcd"); err != nil {
			return nil, err
		}
		k, err := newKube(o.kubeAPIServer, o.etcd)
		if err != nil {
			return nil, err
		}
		systems = append(systems, k)
	}
	if len(systems) == 0 {
		return nil, errNothing
	}
	return systems, nil
}

// wholeClusters returns svc with all controllers.
func wholeClusters(o options) ([]system, error) {
	if err := o.need("svc", "svclet"); err != nil {
		return nil, err
	}
	s, err := newSVC(o.svc)
	if err != nil {
		return nil, err
	}
	return []system{&wholeSystem{s, o.svclet}}, nil
}

// controllerManagers returns svc's controllers, and kube-controller-manager with
// kube-scheduler, both with an API server of svc.
func controllerManagers(o options) ([]system, error) {
	if err := o.need("svc"); err != nil {
		return nil, err
	}
	api, err := newSVC(o.svc)
	if err != nil {
		return nil, err
	}
	systems := []system{&svcManager{api}}
	if o.kubeControllerManager != "" {
		if err := o.need("kube-controller-manager", "kube-scheduler"); err != nil {
			return nil, err
		}
		api, err := newSVC(o.svc)
		if err != nil {
			return nil, err
		}
		systems = append(systems, &kubeManagers{api, o.kubeControllerManager, o.kubeScheduler})
	}
	return systems, nil
}
