// Program schedule decides with the plugins of the real kube-scheduler: it reads
// clusters with a pod each from the standard input, as JSON, and writes what the
// default profile decides about that pod. The comparison of svc's decisions with it is
// in controllers/scheduler/decision.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Question is a cluster, and the pod to decide about.
type Question struct {
	Nodes          []*corev1.Node
	Pods           []*corev1.Pod // that have a node
	Nominated      []*corev1.Pod // to status.nominatedNodeName
	Namespaces     []*corev1.Namespace
	Services       []*corev1.Service
	ReplicaSets    []*appsv1.ReplicaSet
	Budgets        []*policyv1.PodDisruptionBudget
	Claims         []*corev1.PersistentVolumeClaim
	Volumes        []*corev1.PersistentVolume
	Classes        []*storagev1.StorageClass
	CSINodes       []*storagev1.CSINode
	Drivers        []*storagev1.CSIDriver
	Capacities     []*storagev1.CSIStorageCapacity
	Attachments    []*storagev1.VolumeAttachment
	DeviceClasses  []*resourcev1.DeviceClass
	Slices         []*resourcev1.ResourceSlice
	ResourceClaims []*resourcev1.ResourceClaim
	// ScoreDevices is whether the extended resources of scoredDevices count in scores.
	ScoreDevices bool
	Pod          *corev1.Pod
}

// Answer is the decision.
type Answer struct {
	// Scores are the weighted sums of the feasible nodes' scores.
	Scores map[string]int64
	// Plugins are the weighted scores by node and plugin.
	Plugins map[string]map[string]int64
	// Why are the messages of the others.
	Why map[string]string
	// Nominated is the node that preemption chooses if none is feasible, with the names
	// of the victims; or else Preemption is the reason why it chooses none.
	Nominated  string
	Victims    []string
	Preemption string
	// Failed is whether the preemption fails: DynamicResources misses its state if another plugin
	// has rejected the pod before.
	Failed bool
	// Released is the resource claim that is deallocated if no node is feasible.
	Released string
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := newScheduler(ctx)
	if err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(bufio.NewReaderSize(in, 1<<20)), json.NewEncoder(out)
	for {
		var q Question
		if err := decoder.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := s.answer(ctx, &q)
		if err != nil {
			return fmt.Errorf("pod %s: %w", q.Pod.Name, err)
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

// scheduler has the plugins of the default profile. Their informers never run: the
// objects of a question are put into the stores from which they read.
type scheduler struct {
	*lister
	nominator
	// framework is the one for the current question: frameworks[1] if it scores devices.
	framework  framework.Framework
	frameworks [2]framework.Framework
	informers  informers.SharedInformerFactory
	client     *fake.Clientset
	// claims and volumes are followed by a plugin's own cache, and the others by that of devices.
	claims, volumes               *followed
	resourceClaims, deviceClasses *followed
}

// omitted are plugins of features that svc's release does not have, and those that bind.
var omitted = sets.New("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")

func newScheduler(ctx context.Context) (*scheduler, error) {
	// So that preemption has ended when it returns. The other is on by default from 1.37 on.
	if err := utilfeature.DefaultMutableFeatureGate.Set("SchedulerAsyncPreemption=false,VolumeLimitScaling=true"); err != nil {
		return nil, err
	}
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := &defaults.Profiles[0]
	var enabled []config.Plugin
	for _, p := range profile.Plugins.MultiPoint.Enabled {
		if !omitted.Has(p.Name) {
			enabled = append(enabled, p)
		}
	}
	profile.Plugins.MultiPoint.Enabled = enabled
	s := &scheduler{lister: &lister{}, nominator: nominator{}, client: fake.NewClientset()}
	s.client.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, &corev1.Pod{}, nil })
	s.client.PrependReactor("*", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &resourcev1.ResourceClaim{}, nil
	})
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	s.claims = follow(s.informers, &corev1.PersistentVolumeClaim{}, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	s.volumes = follow(s.informers, &corev1.PersistentVolume{}, cache.Indexers{})
	devices, err := s.followDevices(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.frameworks {
		if i == 1 {
			scoreDevices(profile)
		}
		s.frameworks[i], err = frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
			frameworkruntime.WithClientSet(s.client), frameworkruntime.WithInformerFactory(s.informers),
			frameworkruntime.WithSnapshotSharedLister(s.lister), frameworkruntime.WithPodNominator(s.nominator),
			frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(s.informers.Storage().V1().CSINodes().Lister())),
			frameworkruntime.WithSharedDRAManager(devices),
			frameworkruntime.WithEventRecorder(events.NewFakeRecorder(1<<20)),
			frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
			frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		)
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// followDevices returns what plugins read of devices, which follows the objects of questions.
func (s *scheduler) followDevices(ctx context.Context) (fwk.SharedDRAManager, error) {
	s.resourceClaims = follow(s.informers, &resourcev1.ResourceClaim{}, cache.Indexers{})
	s.deviceClasses = follow(s.informers, &resourcev1.DeviceClass{}, cache.Indexers{})
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: s.informers.Resource().V1().ResourceSlices()})
	if err != nil {
		return nil, err
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), s.resourceClaims, "ResourceClaim", "", nil)
	devices := dynamicresources.NewDRAManager(ctx, claims, slices, s.informers)
	// As the event handlers of kube-scheduler do.
	_, err = s.deviceClasses.AddEventHandler(devices.DeviceClassResolver().(cache.ResourceEventHandler))
	return devices, err
}

// scoredDevices are extended resources with their weights that count in scores if a question
// says so, and balanced the one whose use is balanced.
var (
	balanced      = config.ResourceSpec{Name: "deviceclass.resource.kubernetes.io/gpu", Weight: 1}
	scoredDevices = []config.ResourceSpec{{Name: "example.com/gpu", Weight: 3}, {Name: balanced.Name, Weight: 2}}
)

// scoreDevices changes the scores of resources of a profile.
func scoreDevices(profile *config.KubeSchedulerProfile) {
	for i := range profile.PluginConfig {
		switch args := profile.PluginConfig[i].Args.(type) {
		case *config.NodeResourcesFitArgs:
			args.ScoringStrategy.Resources = append(args.ScoringStrategy.Resources, scoredDevices...)
		case *config.NodeResourcesBalancedAllocationArgs:
			args.Resources = append(args.Resources, balanced)
		}
	}
}

// lister is the snapshot of the current question.
type lister struct{ fwk.SharedLister }

// nominator has the nominated pods of the current question by node.
type nominator map[string][]fwk.PodInfo

func (n nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (n nominator) DeleteNominatedPodIfExists(*corev1.Pod)                        {}
func (n nominator) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo)      {}
func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo                { return n[node] }

// load puts the objects of a question where plugins read them.
func (s *scheduler) load(q *Question) error {
	s.SharedLister = schedulercache.NewSnapshot(q.Pods, q.Nodes)
	s.framework = s.frameworks[0]
	if q.ScoreDevices {
		s.framework = s.frameworks[1]
	}
	clear(s.nominator)
	for _, pod := range q.Nominated {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return err
		}
		s.nominator[pod.Status.NominatedNodeName] = append(s.nominator[pod.Status.NominatedNodeName], info)
	}
	pods := append(append([]*corev1.Pod{q.Pod}, q.Pods...), q.Nominated...)
	return errors.Join(
		replace(s.informers.Core().V1().Pods().Informer(), pods),
		replace(s.informers.Core().V1().Nodes().Informer(), q.Nodes),
		replace(s.informers.Core().V1().Namespaces().Informer(), q.Namespaces),
		replace(s.informers.Core().V1().Services().Informer(), q.Services),
		replace(s.informers.Apps().V1().ReplicaSets().Informer(), q.ReplicaSets),
		replace(s.informers.Policy().V1().PodDisruptionBudgets().Informer(), q.Budgets),
		replace(s.claims, q.Claims),
		replace(s.volumes, q.Volumes),
		replace(s.informers.Storage().V1().StorageClasses().Informer(), q.Classes),
		replace(s.informers.Storage().V1().CSINodes().Informer(), q.CSINodes),
		replace(s.informers.Storage().V1().CSIDrivers().Informer(), q.Drivers),
		replace(s.informers.Storage().V1().CSIStorageCapacities().Informer(), q.Capacities),
		replace(s.informers.Storage().V1().VolumeAttachments().Informer(), q.Attachments),
		replace(s.deviceClasses, q.DeviceClasses),
		replace(s.resourceClaims, q.ResourceClaims),
		replace(s.informers.Resource().V1().ResourceSlices().Informer(), q.Slices),
	)
}

func replace[T any](informer cache.SharedIndexInformer, objects []T) error {
	list := make([]any, len(objects))
	for i := range objects {
		list[i] = objects[i]
	}
	before := informer.GetIndexer().List()
	if err := informer.GetIndexer().Replace(list, ""); err != nil {
		return err
	}
	if f, ok := informer.(*followed); ok {
		f.tell(before, list)
	}
	return nil
}

// followed is an informer whose handlers get what replace does.
type followed struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

// follow makes the informer of a kind a followed one.
func follow(factory informers.SharedInformerFactory, kind runtime.Object, indexers cache.Indexers) *followed {
	f := &followed{SharedIndexInformer: cache.NewSharedIndexInformer(&cache.ListWatch{}, kind, 0, indexers)}
	factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return f })
	return f
}

// AddEventHandler implements cache.SharedInformer.
func (f *followed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handlers = append(f.handlers, h)
	return nil, nil
}

func (f *followed) tell(removed, added []any) {
	for _, h := range f.handlers {
		for _, object := range removed {
			h.OnDelete(object)
		}
		for _, object := range added {
			h.OnAdd(object, false)
		}
	}
}

func (s *scheduler) answer(ctx context.Context, q *Question) (*Answer, error) {
	if err := s.load(q); err != nil {
		return nil, err
	}
	a := &Answer{Scores: map[string]int64{}, Plugins: map[string]map[string]int64{}, Why: map[string]string{}}
	state := framework.NewCycleState()
	all, err := s.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	statuses := framework.NewDefaultNodeToStatus()
	result, status, _ := s.framework.RunPreFilterPlugins(ctx, state, q.Pod)
	if status.Code() == fwk.Error {
		return nil, status.AsError()
	}
	var feasible []fwk.NodeInfo
	for _, n := range all {
		name, why := n.Node().Name, status
		if why.IsSuccess() && !result.AllNodes() && !result.NodeNames.Has(name) {
			why = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not one of the nodes that the pod names")
		}
		if why.IsSuccess() {
			why = s.framework.RunFilterPluginsWithNominatedPods(ctx, state, q.Pod, n)
		}
		if why.Code() == fwk.Error {
			return nil, why.AsError()
		}
		if why.IsSuccess() {
			feasible = append(feasible, n)
			continue
		}
		statuses.Set(name, why)
		a.Why[name] = why.Message()
	}
	if len(feasible) == 0 {
		return a, s.preempt(ctx, a, state, q.Pod, statuses)
	}
	return a, s.score(ctx, a, state, q.Pod, feasible)
}

func (s *scheduler) score(ctx context.Context, a *Answer, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) error {
	if status := s.framework.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		return status.AsError()
	}
	scores, status := s.framework.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		return status.AsError()
	}
	for _, n := range scores {
		a.Scores[n.Name], a.Plugins[n.Name] = n.TotalScore, map[string]int64{}
		for _, p := range n.Scores {
			a.Plugins[n.Name][p.Name] = p.Score
		}
	}
	return nil
}

func (s *scheduler) preempt(ctx context.Context, a *Answer, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) error {
	s.client.ClearActions()
	result, status := s.framework.RunPostFilterPlugins(ctx, state, pod, statuses)
	if a.Failed = errors.Is(status.AsError(), fwk.ErrNotFound); a.Failed {
		return nil
	}
	if status.Code() == fwk.Error {
		return status.AsError()
	}
	a.Preemption = status.Message()
	if result != nil && result.NominatingInfo != nil {
		a.Nominated = result.NominatedNodeName
	}
	for _, action := range s.client.Actions() {
		if deleted, ok := action.(clienttesting.DeleteAction); ok && action.Matches("delete", "pods") {
			a.Victims = append(a.Victims, deleted.GetNamespace()+"/"+deleted.GetName())
		}
		if updated, ok := action.(clienttesting.UpdateAction); ok && action.Matches("update", "resourceclaims/status") {
			a.Released = updated.GetObject().(*resourcev1.ResourceClaim).Name
		}
	}
	return nil
}
