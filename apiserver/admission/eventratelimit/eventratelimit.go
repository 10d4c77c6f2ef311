// Package eventratelimit owns the admission plugin EventRateLimit of Kubernetes: it
// bounds the rate of events that the API server accepts, in all, by namespace, by user,
// or by source and object. It needs a configuration.
package eventratelimit

import (
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"svc.dev/svc/apiserver/admission/pluginconfig"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "EventRateLimit"

// defaultCacheSize is of how many namespaces, users or objects a limit keeps the
// rate.
const defaultCacheSize = 4096

// configuration has at least one limit.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []limit `json:"limits"`
}

// limit is the number of events per second, and how many more may come at once, for
// the server or for each key of the type.
type limit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize,omitempty"`
}

// types are the types of limits, and the key of a request for each.
func types() map[string]func(admission.Attributes) string {
	return map[string]func(admission.Attributes) string{
		"Server":          func(admission.Attributes) string { return "" },
		"Namespace":       admission.Attributes.GetNamespace,
		"User":            func(a admission.Attributes) string { return a.GetUserInfo().GetName() },
		"SourceAndObject": sourceAndObject,
	}
}

func sourceAndObject(a admission.Attributes) string {
	event, ok := a.GetObject().(*corev1.Event)
	if !ok {
		return ""
	}
	o := event.InvolvedObject
	return strings.Join([]string{event.Source.Component, event.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}, "")
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) { return newPlugin(file, clock.RealClock{}) })
}

// plugin enforces the limits.
type plugin struct {
	*admission.Handler
	limits []enforcer
}

// enforcer enforces one limit.
type enforcer struct {
	limit
	key   func(admission.Attributes) string
	rates *lru.Cache // of flowcontrol.RateLimiter by key
	clock clock.PassiveClock
}

var _ admission.ValidationInterface = &plugin{}

func newPlugin(file io.Reader, clock clock.PassiveClock) (*plugin, error) {
	var c configuration
	kind := metav1.TypeMeta{APIVersion: "eventratelimit.admission.k8s.io/v1alpha1", Kind: "Configuration"}
	if err := pluginconfig.ReadKind(PluginName, file, &c, &c.TypeMeta, kind); err != nil {
		return nil, err
	}
	if errs := c.validate(); len(errs) > 0 {
		return nil, fmt.Errorf("configuration of %s: %w", PluginName, errs.ToAggregate())
	}
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
	for _, l := range c.Limits {
		size := int(l.CacheSize)
		if size == 0 {
			size = defaultCacheSize
		}
		p.limits = append(p.limits, enforcer{limit: l, key: types()[l.Type], rates: lru.New(size), clock: clock})
	}
	return p, nil
}

func (c *configuration) validate() field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("limits")
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(path, c.Limits, "must not be empty"))
	}
	for i, l := range c.Limits {
		path := path.Index(i)
		if types()[l.Type] == nil {
			errs = append(errs, field.NotSupported(path.Child("type"), l.Type, []string{"Server", "Namespace", "User", "SourceAndObject"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(path.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(path.Child("qps"), l.QPS, "must be positive"))
		}
		if l.CacheSize < 0 {
			errs = append(errs, field.Invalid(path.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
	}
	return errs
}

// Validate implements admission.ValidationInterface. A dry run writes no event.
func (p *plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// Events of both groups have this type.
	if _, ok := a.GetObject().(*corev1.Event); !ok || a.IsDryRun() {
		return nil
	}
	var errs []error
	for _, limit := range p.limits {
		if err := limit.accept(a); err != nil {
			errs = append(errs, err)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return apierrors.NewTooManyRequestsError(err.Error())
	}
	return nil
}

func (e *enforcer) accept(a admission.Attributes) error {
	key := e.key(a)
	rate, ok := e.rates.Get(key)
	if !ok {
		rate = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(float32(e.QPS), int(e.Burst), e.clock)
		e.rates.Add(key, rate)
	}
	if !rate.(flowcontrol.PassiveRateLimiter).TryAccept() {
		return fmt.Errorf("limit reached on type %v for key %v", e.Type, key)
	}
	return nil
}
