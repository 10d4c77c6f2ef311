package configfile

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/internal/suggest"
)

// fixed are the plugins of kube-scheduler's default profile whose work cannot be
// disabled here.
var fixed = sets.New("SchedulingGates", "PrioritySort", "DefaultBinder")

const (
	preemption = "DefaultPreemption"
	all        = "*"
)

// plugins applies which plugins are enabled, with which weights.
func (p *parser) plugins(path *field.Path, c *configv1.Plugins, profile *decision.Profile) {
	p.otherPoints(path, c)
	filters, scores, post := sets.New(decision.FilterNames()...), sets.New(decision.ScoreNames()...), sets.New(preemption)
	p.names(path.Child("multiPoint"), &c.MultiPoint, filters.Union(scores).Union(post).Union(fixed))
	p.names(path.Child("filter"), &c.Filter, filters)
	p.names(path.Child("score"), &c.Score, scores)
	p.names(path.Child("postFilter"), &c.PostFilter, post)
	for i, disabled := range c.MultiPoint.Disabled {
		if fixed.Has(disabled.Name) {
			p.unsupported(path.Child("multiPoint", "disabled").Index(i).Child("name"), "%s cannot be disabled", disabled.Name)
		}
	}
	profile.Disabled = sets.Set[string]{}
	for name := range filters {
		if _, enabled := weight(name, 1, &c.MultiPoint, &c.Filter); !enabled {
			profile.Disabled.Insert(name)
		}
	}
	for name := range scores {
		w, enabled := weight(name, profile.Weights[name], &c.MultiPoint, &c.Score)
		if profile.Weights[name] = w; !enabled {
			delete(profile.Weights, name)
		}
	}
	_, enabled := weight(preemption, 1, &c.MultiPoint, &c.PostFilter)
	profile.NoPreemption = !enabled
}

// weight returns the weight of a plugin at an extension point, and whether it is enabled
// there. What the point says takes precedence over what multiPoint says. A plugin that is
// enabled without a weight has the weight 1.
func weight(name string, otherwise int64, sets ...*configv1.PluginSet) (int64, bool) {
	enabled := true
	for _, set := range sets {
		if slices.ContainsFunc(set.Disabled, func(p configv1.Plugin) bool { return p.Name == name || p.Name == all }) {
			enabled = false
		}
		for _, plugin := range set.Enabled {
			if plugin.Name == name {
				enabled, otherwise = true, int64(max(ptr.Deref(plugin.Weight, 1), 1))
			}
		}
	}
	return otherwise, enabled
}

// names checks the plugins of an extension point.
func (p *parser) names(path *field.Path, set *configv1.PluginSet, known sets.Set[string]) {
	check := func(list string, plugins []configv1.Plugin) {
		seen := sets.Set[string]{}
		for i, plugin := range plugins {
			at := path.Child(list).Index(i)
			switch {
			case list == "disabled" && plugin.Name == all:
			case seen.Has(plugin.Name):
				p.errs = append(p.errs, field.Duplicate(at.Child("name"), plugin.Name))
			case !known.Has(plugin.Name):
				p.unknown(at.Child("name"), plugin.Name, known)
			}
			seen.Insert(plugin.Name)
			if plugin.Weight != nil {
				p.within(at.Child("weight"), int64(*plugin.Weight), 0, 1_000_000)
			}
		}
	}
	check("enabled", set.Enabled)
	check("disabled", set.Disabled)
}

// unknown records the name of a plugin that is not there.
func (p *parser) unknown(path *field.Path, name string, known sets.Set[string]) {
	if similar := suggest.Closest(name, sets.List(known)); similar != "" {
		p.invalid(path, name, "there is no such plugin here: did you mean %q?", similar)
		return
	}
	p.errs = append(p.errs, field.NotSupported(path, name, sets.List(known)))
}

// otherPoints rejects the extension points whose plugins cannot be chosen.
func (p *parser) otherPoints(path *field.Path, c *configv1.Plugins) {
	for _, point := range []struct {
		name string
		set  *configv1.PluginSet
	}{
		{"preEnqueue", &c.PreEnqueue},
		{"queueSort", &c.QueueSort},
		{"preFilter", &c.PreFilter},
		{"preScore", &c.PreScore},
		{"reserve", &c.Reserve},
		{"permit", &c.Permit},
		{"preBind", &c.PreBind},
		{"bind", &c.Bind},
		{"postBind", &c.PostBind},
		{"placementGenerate", &c.PlacementGenerate},
		{"placementScore", &c.PlacementScore},
		{"podGroupPostFilter", &c.PodGroupPostFilter},
	} {
		if len(point.set.Enabled)+len(point.set.Disabled) > 0 {
			p.unsupported(path.Child(point.name), "plugins are enabled and disabled at multiPoint, filter, score and postFilter: name them there")
		}
	}
}
