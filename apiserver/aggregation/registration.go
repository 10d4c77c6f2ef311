// Package aggregation owns the APIServices of this process: every API version
// that it serves, built in or of custom resources, has an APIService, by which the
// aggregator routes to it as it does to other servers.
package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
	"k8s.io/utils/clock"
)

const (
	hookName  = "svc-apiserver-autoregistration"
	checkName = "autoregister-completion"

	// workers is how many APIServices are written at the same time. At the first
	// start all are written at once, and etcd commits concurrent writes together.
	workers = 32
)

// Config is what a Registration registers, and with which clients.
type Config struct {
	// Local are the versions that this process serves by itself, in the order
	// of discovery: of two groups with a resource of the same name, clients
	// prefer the first.
	Local []schema.GroupVersion
	// Fallback are those of Local that are served here only while no other server
	// serves them: an APIService that refers to another server is not changed.
	Fallback []schema.GroupVersion
	// CRDs are the sources of the versions of custom resources. It is nil if there are
	// no custom resources.
	CRDs apiextensionsinformers.CustomResourceDefinitionInformer
	// APIServices and Client read and write APIServices.
	APIServices apiregistrationinformers.APIServiceInformer
	Client      apiregistrationv1client.APIServicesGetter
	Clock       clock.Clock
	// Full reports whether etcd refuses to store APIServices because it has reached its quota.
	// Nil is for never.
	Full func() bool
}

// Registration maintains the APIServices of the versions that this process serves.
// Those of local versions are created at the start; those of custom resources are
// created and deleted with their definitions.
type Registration struct {
	local      []*apiregistrationv1.APIService
	controller interface {
		autoregister.AutoAPIServiceRegistration
		Run(workers int, stop <-chan struct{})
	}
	// synced is done when the controller has all APIServices to register. It must
	// not start before: it deletes those that are not registered.
	synced   []cache.DoneChecker
	fallback *fallback
	full     func() bool

	lock sync.Mutex
	// pending are the local versions not yet seen available.
	pending sets.Set[string]
}

// New makes a Registration. It must be called before the informers start.
func New(c Config) (*Registration, error) {
	r := &Registration{
		local:      LocalServices(c.Local),
		controller: autoregister.NewAutoRegisterController(c.APIServices, c.Client),
		fallback:   newFallback(c.APIServices.Lister(), c.Client, c.Clock),
		pending:    sets.New[string](),
		full:       c.Full,
	}
	for _, service := range r.local {
		r.pending.Insert(service.Name)
		if slices.Contains(c.Fallback, schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}) {
			r.fallback.add(service)
		} else {
			r.controller.AddAPIServiceToSyncOnStart(service)
		}
	}
	if _, err := c.APIServices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.observe,
		UpdateFunc: func(_, obj any) { r.observe(obj) },
		DeleteFunc: func(any) { r.fallback.deleted() },
	}); err != nil {
		return nil, fmt.Errorf("watch APIServices: %w", err)
	}
	r.synced = []cache.DoneChecker{c.APIServices.Informer().HasSyncedChecker()}
	if c.CRDs == nil {
		return r, nil
	}
	watched, err := watchDefinitions(c.CRDs, r.controller, c.Local)
	if err != nil {
		return nil, fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	r.synced = append(r.synced, watched.HasSyncedChecker())
	return r, nil
}

// AddTo makes the registration part of the aggregator's start: as a post-start
// hook, as a condition of its readiness, and in the order of its discovery.
func (r *Registration) AddTo(aggregator *genericapiserver.GenericAPIServer) error {
	if discovery := aggregator.AggregatedDiscoveryGroupManager; discovery != nil {
		for _, service := range r.local {
			gv := metav1.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
			discovery.SetGroupVersionPriority(gv, int(service.Spec.GroupPriorityMinimum), int(service.Spec.VersionPriority))
		}
	}
	if err := aggregator.AddPostStartHook(hookName, func(ctx genericapiserver.PostStartHookContext) error {
		go r.Run(ctx)
		return nil
	}); err != nil {
		return err
	}
	return aggregator.AddBootSequenceHealthChecks(r.Check())
}

// Run writes APIServices until the context is cancelled.
func (r *Registration) Run(ctx context.Context) {
	// The controller would poll until its informer has synced, so it is started
	// after that.
	if !cache.WaitFor(ctx, "", r.synced...) {
		return
	}
	var fallbacks sync.WaitGroup
	defer fallbacks.Wait()
	fallbacks.Go(func() { r.fallback.run(ctx) })
	r.controller.Run(workers, ctx.Done())
}

// Check fails until all local versions have been available once, and names
// those that have not. It passes at a full etcd, where new ones cannot be.
func (r *Registration) Check() healthz.HealthChecker {
	return healthz.NamedCheck(checkName, func(*http.Request) error {
		r.lock.Lock()
		defer r.lock.Unlock()
		if r.pending.Len() == 0 || r.full != nil && r.full() {
			return nil
		}
		return fmt.Errorf("missing APIService: %s", strings.Join(sets.List(r.pending), ", "))
	})
}

func (r *Registration) observe(obj any) {
	service, ok := obj.(*apiregistrationv1.APIService)
	if !ok {
		return
	}
	// The check does not wait for versions of other servers.
	if service.Spec.Service == nil && !helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pending.Delete(service.Name)
}

// The priorities are ordered as in Kubernetes: the core group is first, custom
// resources come after all built-in groups, and the groups of other servers are
// usually in between.
const (
	corePriority  = 18000
	firstPriority = 17800
	priorityStep  = 50
	lastPriority  = 2000

	preferredVersionPriority = 16

	definitionGroupPriority   = 1000
	definitionVersionPriority = 100
)

// LocalServices returns the APIServices of versions that this process serves,
// which are given in the order of discovery: the first of a group is preferred. Among the
// others, stable versions are preferred to beta and beta to alpha ones; among equals
// the aggregator prefers the higher version.
func LocalServices(versions []schema.GroupVersion) []*apiregistrationv1.APIService {
	var groups []string
	var services []*apiregistrationv1.APIService
	for _, gv := range versions {
		priority, first := corePriority, int32(0)
		if gv.Group != "" {
			if !slices.Contains(groups, gv.Group) {
				groups = append(groups, gv.Group)
				if !preferredByName(gv, versions) {
					first = preferredVersionPriority
				}
			}
			priority = max(lastPriority, firstPriority-priorityStep*slices.Index(groups, gv.Group))
		}
		services = append(services, apiService(gv, int32(priority), max(first, versionPriority(gv.Version))))
	}
	return services
}

// preferredByName reports whether no other version of the group would be preferred to
// gv because of their names.
func preferredByName(gv schema.GroupVersion, versions []schema.GroupVersion) bool {
	return !slices.ContainsFunc(versions, func(other schema.GroupVersion) bool {
		return other.Group == gv.Group && version.CompareKubeAwareVersionStrings(other.Version, gv.Version) > 0
	})
}

func versionPriority(version string) int32 {
	switch {
	case strings.Contains(version, "alpha"):
		return 1
	case strings.Contains(version, "beta"):
		return 9
	default:
		return 15
	}
}

func apiService(gv schema.GroupVersion, groupPriority, versionPriority int32) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(gv)},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: groupPriority, VersionPriority: versionPriority,
		},
	}
}

// serviceName returns the name that an APIService must have. The core group's ends
// in a dot.
func serviceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }
