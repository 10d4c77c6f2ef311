package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/releases"
)

// offSince is the release from which on new beta versions are off by default (KEP-3136).
const offSince = 24

// merge joins the releases to kinds and to the types that these reach.
func merge(all map[releases.Release]*source, facts *facts) ([]releases.Kind, map[string]*releases.Type, error) {
	kinds, err := mergeKinds(all, facts)
	if err != nil {
		return nil, nil, err
	}
	types := map[string]*releases.Type{}
	enums := enumerations(all)
	for _, k := range kinds {
		for open := []string{k.Package + "." + k.Kind}; len(open) > 0; {
			name := open[0]
			open = open[1:]
			if types[name] != nil {
				continue
			}
			dot := strings.LastIndex(name, ".")
			t := &releases.Type{Package: name[:dot], Name: name[dot+1:], Enum: enums[name]}
			types[name] = t
			t.Fields = mergeFields(all, t.Package, t.Name, enums)
			for i := range t.Fields {
				if of := t.Fields[i].Type; of != "" {
					open = append(open, of)
					t.Fields[i].Type = strings.TrimPrefix(of, t.Package+".")
				}
			}
		}
	}
	return kinds, types, nil
}

// enumerations returns the types that any release marks as such: the markers are
// younger than the types.
func enumerations(all map[releases.Release]*source) map[string]bool {
	enums := map[string]bool{}
	for _, s := range all {
		for _, p := range s.packages {
			for name, d := range p.types {
				if d.enum {
					enums[p.name+"."+name] = true
				}
			}
		}
	}
	for _, s := range all {
		for _, p := range s.packages {
			for name, d := range p.types {
				d.enum = enums[p.name+"."+name]
			}
		}
	}
	return enums
}

// mergeFields returns the fields of a type, or the values of an enumeration, in all
// releases, sorted by name.
func mergeFields(all map[releases.Release]*source, in, name string, enums map[string]bool) []releases.Field {
	var fields []releases.Field
	for _, r := range slices.Sorted(maps.Keys(all)) {
		p := all[r].packages[in]
		if p == nil || p.types[name] == nil {
			continue
		}
		present := all[r].fieldsOf(p, p.types[name])
		if enums[in+"."+name] {
			for _, value := range p.types[name].values {
				present = append(present, releases.Field{Name: value, Shape: releases.Scalar})
			}
		}
		for _, f := range present {
			if f.Name == "" || strings.ContainsAny(f.Name, " \t") {
				continue // a value such as "" is not written
			}
			same := func(other releases.Field) bool {
				return other.Name == f.Name && other.Shape == f.Shape && other.Type == f.Type && other.In.Last >= r-1
			}
			if i := slices.IndexFunc(fields, same); i >= 0 {
				fields[i].In.Last = r
				continue
			}
			f.In = releases.Span{First: r, Last: r}
			fields = append(fields, f)
		}
	}
	slices.SortStableFunc(fields, func(a, b releases.Field) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// mergeKinds returns the kinds that any release serves.
func mergeKinds(all map[releases.Release]*source, facts *facts) ([]releases.Kind, error) {
	kinds := map[string]*releases.Kind{}
	for _, r := range slices.Sorted(maps.Keys(all)) {
		for _, p := range all[r].packages {
			if !strings.Contains(p.name, "/v") || strings.HasPrefix(p.name, "meta/") {
				continue
			}
			version := p.name[strings.Index(p.name, "/")+1:]
			for name, d := range p.types {
				key := p.name + "." + name
				if last, ok := facts.last[key]; facts.unserved[key] || ok && r > last || !isKind(all[r].fieldsOf(p, d)) {
					continue
				}
				l := lifecycleOf(all, r, p.name, name)
				served := releases.Span{First: r, Last: r}
				switch {
				case l.removed != 0 && l.removed <= releases.Oldest:
					served = releases.Span{First: l.introduced, Last: l.removed - 1}
				case l.removed != 0 && l.removed <= r:
					continue
				case l.introduced > r && releases.Stability(version) != "GA":
					continue // the types were there before the storage; stable kinds are declared wrongly in places
				}
				k := kinds[key]
				if k == nil {
					k = &releases.Kind{Package: p.name, Served: served}
					k.Group, k.Version, k.Kind = p.group, version, name
					kinds[key] = k
				} else if k.Served.Last < served.First-1 {
					return nil, fmt.Errorf("%s is served by %v and %v, but not between them", key, k.Served.Last, r)
				}
				k.Served.Last = served.Last
				k.Deprecated, k.Removed, k.Replacement = l.deprecated, l.removed, l.replacement
				if k.Served.First == releases.Oldest && l.introduced != 0 && l.introduced < releases.Oldest {
					k.Served.First = l.introduced
				}
				if replacement, ok := facts.replacements[key]; ok {
					k.Replacement = replacement
				}
			}
		}
	}
	var list []releases.Kind
	for _, k := range kinds {
		k.Off = k.Stability() == "alpha" || k.Stability() == "beta" && k.Served.First >= offSince && !facts.on[k.Package]
		list = append(list, *k)
	}
	for i := range list {
		if k := &list[i]; k.Removed == 0 && k.Served.Last < releases.Newest {
			k.Removed = k.Served.Last + 1
		}
		if k := &list[i]; k.Replacement.Empty() && (k.Deprecated != 0 || k.Removed != 0) {
			k.Replacement = mostStable(list, k)
		}
	}
	return list, nil
}

// mostStable returns the most stable and newest version of the same kind, if it is
// more so than k.
func mostStable(list []releases.Kind, k *releases.Kind) schema.GroupVersionKind {
	best := k
	for i := range list {
		if other := &list[i]; other.GroupKind() == k.GroupKind() && releases.CompareVersions(other.Version, best.Version) > 0 {
			best = other
		}
	}
	if best == k {
		return schema.GroupVersionKind{}
	}
	return best.GroupVersionKind
}

// isKind reports whether a type with these fields is a kind of objects.
func isKind(fields []releases.Field) bool {
	has := func(name, of string) bool {
		return slices.ContainsFunc(fields, func(f releases.Field) bool { return f.Name == name && f.Type == of })
	}
	return has("kind", "") && has("apiVersion", "") && has("metadata", "meta/v1.ObjectMeta")
}

// lifecycleOf returns the lifecycle of a kind as release r declares it, or the nearest
// later release if r does not.
func lifecycleOf(all map[releases.Release]*source, r releases.Release, in, name string) lifecycle {
	for ; r <= releases.Newest; r++ {
		if s := all[r]; s != nil && s.packages[in] != nil && s.packages[in].lifecycles[name] != nil {
			return *s.packages[in].lifecycles[name]
		}
	}
	return lifecycle{}
}
