// Package aggregation ties the aggregator to the servers behind it: every API
// version that this process serves, by itself or for custom resources, has an
// APIService, so that the aggregator finds it as it finds those of other
// servers.
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
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

const (
	hookName  = "svc-apiserver-autoregistration"
	checkName = "autoregister-completion"

	// workers is how many APIServices are written at the same time. At the
	// first start all are written at once, and etcd makes one commit of those
	// that come together.
	workers = 32
)

// Config says what a Registration registers, and where.
type Config struct {
	// Local are the versions that this process serves by itself, in the order
	// of discovery: of two groups with a resource of the same name, clients
	// prefer the first.
	Local []schema.GroupVersion
	// Yielding are those of Local that are served here as long as nobody else
	// serves them: an APIService that names another server is left alone.
	Yielding []schema.GroupVersion
	// CRDs are the sources of the versions of custom resources.
	CRDs apiextensionsinformers.CustomResourceDefinitionInformer
	// APIServices and Client read and write APIServices.
	APIServices apiregistrationinformers.APIServiceInformer
	Client      apiregistrationv1client.APIServicesGetter
}

// Registration keeps the APIServices of this process's own versions. Those of
// local versions are made at the start; those of custom resources come and go
// with their definitions.
type Registration struct {
	local      []*apiregistrationv1.APIService
	controller interface {
		autoregister.AutoAPIServiceRegistration
		Run(workers int, stop <-chan struct{})
	}
	// synced is done when the controller knows all that it must know before it
	// starts: what it does not know, it removes.
	synced []cache.DoneChecker
	vacant *vacant

	lock sync.Mutex
	// pending are the local versions not yet seen available.
	pending sets.Set[string]
}

// New makes a Registration. It must be called before the informers start.
func New(c Config) (*Registration, error) {
	r := &Registration{
		local:      LocalServices(c.Local),
		controller: autoregister.NewAutoRegisterController(c.APIServices, c.Client),
		vacant:     newVacant(c.APIServices.Lister(), c.Client),
		pending:    sets.New[string](),
	}
	for _, service := range r.local {
		r.pending.Insert(service.Name)
		if slices.Contains(c.Yielding, schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}) {
			r.vacant.add(service)
		} else {
			r.controller.AddAPIServiceToSyncOnStart(service)
		}
	}
	if _, err := c.APIServices.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.observe,
		UpdateFunc: func(_, obj any) { r.observe(obj) },
		DeleteFunc: func(any) { r.vacant.changed() },
	}); err != nil {
		return nil, fmt.Errorf("watch APIServices: %w", err)
	}
	watched, err := watchDefinitions(c.CRDs, r.controller, c.Local)
	if err != nil {
		return nil, fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	r.synced = []cache.DoneChecker{c.APIServices.Informer().HasSyncedChecker(), watched.HasSyncedChecker()}
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

// Run writes APIServices until the context ends.
func (r *Registration) Run(ctx context.Context) {
	// The controller would poll for its informer; so it is not started before
	// there is nothing to wait for.
	if !cache.WaitFor(ctx, "", r.synced...) {
		return
	}
	var filling sync.WaitGroup
	defer filling.Wait()
	filling.Go(func() { r.vacant.run(ctx) })
	r.controller.Run(workers, ctx.Done())
}

// Check fails until all local versions have been available once, and names
// those that have not.
func (r *Registration) Check() healthz.HealthChecker {
	return healthz.NamedCheck(checkName, func(*http.Request) error {
		r.lock.Lock()
		defer r.lock.Unlock()
		if r.pending.Len() == 0 {
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
	// What another server serves is not ours to wait for.
	if service.Spec.Service == nil && !helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pending.Delete(service.Name)
}

// The priorities are those of Kubernetes where it matters to others: the core
// group comes first, custom resources come after all built-in groups, and the
// groups of other servers usually in between.
const (
	corePriority  = 18000
	firstPriority = 17800
	priorityStep  = 50
	lastPriority  = 2000

	definitionGroupPriority   = 1000
	definitionVersionPriority = 100
)

// LocalServices are the APIServices of versions that are served in this
// process, given in the order of discovery. Within a group stable versions are
// preferred to beta ones and those to alpha ones; among equals the aggregator
// prefers the higher.
func LocalServices(versions []schema.GroupVersion) []*apiregistrationv1.APIService {
	var groups []string
	var services []*apiregistrationv1.APIService
	for _, gv := range versions {
		priority := corePriority
		if gv.Group != "" {
			if !slices.Contains(groups, gv.Group) {
				groups = append(groups, gv.Group)
			}
			priority = max(lastPriority, firstPriority-priorityStep*slices.Index(groups, gv.Group))
		}
		services = append(services, apiService(gv, int32(priority), versionPriority(gv.Version)))
	}
	return services
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

// serviceName is the name that an APIService must have; the core group's ends
// in a dot.
func serviceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }
