package configfile

import (
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/extender"
)

// extenders returns the extenders, those that may be ignored last, so that their failure
// costs time only for nodes that all others accept. The resources that they have the
// scheduler ignore are ignored in all profiles.
func (p *parser) extenders(specs []configv1.Extender, profiles []*decision.Profile) []*extender.Extender {
	var all []*extender.Extender
	managed, binder := sets.New[string](), false
	for i := range specs {
		path, spec := field.NewPath("extenders").Index(i), &specs[i]
		p.endpoint(path, spec)
		if spec.PrioritizeVerb != "" && spec.Weight <= 0 {
			p.invalid(path.Child("weight"), spec.Weight, "must be positive, as prioritizeVerb is set")
		}
		if spec.BindVerb != "" && binder {
			p.invalid(path.Child("bindVerb"), spec.BindVerb, "only one extender may bind pods")
		}
		binder = binder || spec.BindVerb != ""
		for j, resource := range spec.ManagedResources {
			at := path.Child("managedResources").Index(j).Child("name")
			switch {
			case !podspec.IsExtendedResource(corev1.ResourceName(resource.Name)):
				p.invalid(at, resource.Name, "must be an extended resource, such as example.com/gpu")
			case managed.Has(resource.Name):
				p.errs = append(p.errs, field.Duplicate(at, resource.Name))
			}
			managed.Insert(resource.Name)
			for _, profile := range profiles {
				if resource.IgnoredByScheduler {
					profile.IgnoredResources = profile.IgnoredResources.Union(sets.New(resource.Name))
				}
			}
		}
		e, err := extender.New(*spec)
		if err != nil {
			p.invalid(path.Child("tlsConfig"), "", "%v", err)
			continue
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b *extender.Extender) int {
		switch {
		case a.Ignorable() == b.Ignorable():
			return 0
		case b.Ignorable():
			return -1
		}
		return 1
	})
	return all
}

// endpoint checks where an extender is.
func (p *parser) endpoint(path *field.Path, spec *configv1.Extender) {
	at := path.Child("urlPrefix")
	u, err := url.Parse(spec.URLPrefix)
	switch {
	case err != nil:
		p.invalid(at, spec.URLPrefix, "%v", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		p.invalid(at, spec.URLPrefix, "must be a URL such as http://localhost:8888/scheduler")
	case spec.EnableHTTPS && !strings.EqualFold(u.Scheme, "https"):
		p.invalid(at, spec.URLPrefix, "must begin with https:, as enableHTTPS is set")
	}
	if spec.HTTPTimeout.Duration < 0 {
		p.invalid(path.Child("httpTimeout"), spec.HTTPTimeout.Duration.String(), "must not be negative")
	}
}
