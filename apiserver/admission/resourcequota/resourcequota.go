// Package resourcequota owns the admission plugin ResourceQuota of Kubernetes: it
// refuses what would exceed a quota of its namespace, and adds the usage of what it
// admits to the quota's status before the object is written. So the usage does not
// exceed the limit, even if several API servers admit objects at the same time: of two
// updates of one status, etcd refuses the later one.
// https://kubernetes.io/docs/concepts/policy/resource-quotas
//
// The controller of the same name lowers the usage when objects are deleted.
package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	library "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	config "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"svc.dev/svc/apis/quota"
	"svc.dev/svc/apiserver/admission/kindreader"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = library.PluginName

const (
	// workers is how many namespaces are evaluated at the same time. The requests of
	// a namespace are evaluated together.
	workers = 5
	// written is of how many quotas the last status that this server wrote is kept.
	written = 1000
)

// Register registers the plugin. It counts the devices of resource claims as the extended
// resources that their device classes offer if extended, which is called when the server
// starts, returns true.
func Register(plugins *admission.Plugins, extended func() (bool, error)) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) {
		c, err := library.LoadConfiguration(file)
		if err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", PluginName, err)
		}
		if errs := validation.ValidateConfiguration(c); len(errs) > 0 {
			return nil, fmt.Errorf("configuration of %s: %w", PluginName, errs.ToAggregate())
		}
		offered, err := extended()
		if err != nil {
			return nil, err
		}
		return &plugin{
			extended: offered,

			Reader: kindreader.New(informer, admission.Create, admission.Update),
			config: c, quotas: &quotas{written: lru.New(written)}, now: clock.RealClock{}.Now,
		}, nil
	})
}

// plugin enforces quotas.
type plugin struct {
	kindreader.Reader[corelisters.ResourceQuotaLister]
	config    *config.Configuration
	extended  bool
	quotas    *quotas
	evaluator library.Evaluator
	now       func() time.Time
}

var (
	_ admission.ValidationInterface        = &plugin{}
	_ initializer.WantsDrainedNotification = &plugin{}
)

// informer returns the informer of the kind that the plugin reads.
func informer(f informers.SharedInformerFactory) kindreader.Informer[corelisters.ResourceQuotaLister] {
	return f.Core().V1().ResourceQuotas()
}

// SetDrainedNotification implements initializer.WantsDrainedNotification. The
// evaluator stops when the server has answered its last request.
func (p *plugin) SetDrainedNotification(drained <-chan struct{}) {
	registry := generic.NewRegistry(quota.Evaluators(quota.Lists{}, p.now))
	var extended quota.Extended
	if p.extended {
		extended = devices{p}
	}
	registry.Add(quota.ResourceClaims(nil, extended, p.now))
	for _, name := range []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceReplicationControllers, corev1.ResourceQuotas} {
		registry.Add(generic.NewObjectCountEvaluator(schema.GroupResource{Resource: string(name)}, nil, name))
	}
	p.evaluator = library.NewQuotaEvaluator(p.quotas, uncounted(), registry, nil, p.config, workers, drained)
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if err := p.Reader.ValidateInitialization(); err != nil {
		return err
	}
	if p.evaluator == nil {
		return errors.New("the plugin needs the end of the server")
	}
	p.quotas.client, p.quotas.lister = p.Client.CoreV1(), p.Lister
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	if _, isNamespace := a.GetObject().(*corev1.Namespace); isNamespace || a.GetNamespace() == "" {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	if len(p.config.LimitedResources) == 0 {
		// Most namespaces have no quota: their requests need not wait for a worker.
		found, err := p.quotas.lister.ResourceQuotas(a.GetNamespace()).List(labels.Everything())
		if err == nil && len(found) == 0 {
			return nil
		}
	}
	return p.evaluator.Evaluate(a)
}

// uncounted returns the resources that quotas never count: those that are not
// stored, and events.
func uncounted() map[schema.GroupResource]struct{} {
	all := map[schema.GroupResource]struct{}{}
	for group, resources := range map[string][]string{
		"":                      {"bindings", "componentstatuses", "events"},
		"events.k8s.io":         {"events"},
		"authentication.k8s.io": {"tokenreviews", "selfsubjectreviews"},
		"authorization.k8s.io":  {"subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"},
	} {
		for _, resource := range resources {
			all[schema.GroupResource{Group: group, Resource: resource}] = struct{}{}
		}
	}
	return all
}
