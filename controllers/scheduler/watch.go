package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/devicetaints"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/versions"
)

// kind is a kind that decisions depend on, with the core's handler of its events:
// before is nil for a new object, and after for a deleted one.
type kind struct {
	object  client.Object
	changed func(c *core, before, after any)
}

func kinds() []kind {
	return []kind{
		kindOf((*core).podChanged),
		kindOf((*core).nodeChanged),
		kindOf((*core).namespaceChanged),
		snapshotKind(0, (*decision.Snapshot).SetService,
			func(s *decision.Snapshot, o *corev1.Service) { s.RemoveService(o.Namespace, o.Name) }),
		kindOf((*core).claimChanged),
		kindOf((*core).volumeChanged),
		snapshotKind(decision.ClassChanged, (*decision.Snapshot).SetClass,
			func(s *decision.Snapshot, o *storagev1.StorageClass) { s.RemoveClass(o.Name) }),
		snapshotKind(decision.CSINodeChanged, (*decision.Snapshot).SetCSINode,
			func(s *decision.Snapshot, o *storagev1.CSINode) { s.RemoveCSINode(o.Name) }),
		kindOf((*core).attachmentChanged),
		snapshotKind(0, (*decision.Snapshot).SetBudget,
			func(s *decision.Snapshot, o *policyv1.PodDisruptionBudget) { s.RemoveBudget(o.Namespace, o.Name) }),
		snapshotKind(decision.ClassChanged, (*decision.Snapshot).SetDriver,
			func(s *decision.Snapshot, o *storagev1.CSIDriver) { s.RemoveDriver(o.Name) }),
		snapshotKind(decision.ClassChanged, (*decision.Snapshot).SetCapacity, (*decision.Snapshot).RemoveCapacity),
		kindOf((*core).resourceClaimChanged),
		kindOf((*core).deviceClassChanged),
		snapshotKind(decision.DevicesChanged, (*decision.Snapshot).SetResourceSlice,
			func(s *decision.Snapshot, o *resourcev1.ResourceSlice) { s.RemoveResourceSlice(o.Name) }),
	}
}

// taintRules is the kind of DeviceTaintRules in a version. Without a rule, devices may be
// free of taints, too.
func taintRules(version versions.Version[resourcev1.DeviceTaintRule]) kind {
	return kind{object: version.Object, changed: func(c *core, before, after any) {
		if after == nil {
			c.snapshot.RemoveDeviceTaintRule(before.(client.Object).GetName())
		} else {
			c.snapshot.SetDeviceTaintRule(version.As(after.(client.Object)))
		}
		c.wake(decision.DevicesChanged)
	}}
}

func reads() []client.Object {
	var objects []client.Object
	for _, k := range kinds() {
		objects = append(objects, k.object)
	}
	return append(objects, devicetaints.Rules[0].Object, groups().object)
}

// groups is the kind of PodGroups, which is watched with its gate.
func groups() kind { return kindOf((*core).groupChanged) }

// groupsServed reports whether pods are scheduled as their PodGroups say: if the gate is on and
// the API server serves them. It logs that they are not, if only the gate is on.
func groupsServed(ctx context.Context, env *controller.Env) (bool, error) {
	on, err := env.On(ctx, groupsGate)
	if err != nil || !on {
		return false, err
	}
	served, err := env.Served(groups().object)
	if err == nil && !served {
		klog.FromContext(ctx).Error(nil, "Pods are scheduled without regard to their groups, because the API server does not serve PodGroups: start it with "+
			"--runtime-config=scheduling.k8s.io/v1beta1=true, and with --release=1.37 or later", "featureGate", groupsGate)
	}
	return served, err
}

// servedKinds returns the kinds that the API server serves, in the versions in which it
// does, without those whose gate is off.
func servedKinds(served func(client.Object) (bool, error), gate func(name string) (on, set bool)) ([]kind, error) {
	var all []kind
	for _, k := range kinds() {
		ok, err := served(k.object)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, k)
		}
	}
	rules, ok, err := devicetaints.ServedRules(served, gate)
	if ok {
		all = append(all, taintRules(rules))
	}
	return all, err
}

// object is a pointer to a kind's Go type.
type object[T any] interface {
	*T
	client.Object
}

func kindOf[T any, P object[T]](changed func(c *core, before, after P)) kind {
	return kind{object: P(new(T)), changed: func(c *core, before, after any) {
		b, _ := before.(P)
		a, _ := after.(P)
		changed(c, b, a)
	}}
}

// snapshotKind is a kind whose objects only the snapshot needs; a new or changed
// object retries the pods that wait for the event.
func snapshotKind[T any, P object[T]](event decision.Event, set, remove func(*decision.Snapshot, P)) kind {
	return kindOf(func(c *core, before, after P) {
		if after == nil {
			remove(c.snapshot, before)
			return
		}
		set(c.snapshot, after)
		c.wake(event)
	})
}

// watch is the informer of a kind, with the core's handler of its events.
type watch struct {
	informer cache.Informer
	changed  func(c *core, before, after any)
}

// watch delivers the events of the watches to the core, and sets ready after their
// initial lists. stop removes the handlers.
func (l *loop) watch(ctx context.Context, watches []watch) (stop func(), err error) {
	var registered []toolscache.ResourceEventHandlerRegistration
	stop = func() {
		for i, r := range registered {
			// An error means that the informer has stopped.
			_ = watches[i].informer.RemoveEventHandler(r)
		}
	}
	for _, w := range watches {
		post := func(before, after any) {
			l.post(ctx, func() { w.changed(l.core, before, after) })
		}
		r, err := w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(after any) { post(nil, after) },
			UpdateFunc: post,
			DeleteFunc: func(before any) {
				if unknown, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
					before = unknown.Obj
				}
				post(before, nil)
			},
		})
		if err != nil {
			return stop, err
		}
		registered = append(registered, r)
	}
	l.running.Go(func() {
		for _, r := range registered {
			select {
			case <-r.HasSyncedChecker().Done():
			case <-ctx.Done():
			}
		}
		l.post(ctx, func() { l.ready = true })
	})
	return stop, nil
}
