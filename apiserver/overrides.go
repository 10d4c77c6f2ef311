package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/suggest"
)

// checkOverrides refuses entries of --etcd-servers-overrides that would have no effect,
// because no objects are stored under their name. Groups with a dot may have custom
// resources, of any name that is not nearly a kind's.
func checkOverrides(entries []string, kinds []*resource.Kind) error {
	overridden, err := storage.ParseOverrides(entries)
	if err != nil {
		return fmt.Errorf("--etcd-servers-overrides: %w", err)
	}
	stored, storedAs := map[schema.GroupResource]bool{}, map[schema.GroupResource]schema.GroupResource{}
	for _, k := range kinds {
		if !k.Stored() {
			continue
		}
		stored[k.Resource()] = true
		for _, gvk := range k.GVKs() {
			storedAs[schema.GroupResource{Group: gvk.Group, Resource: k.Name}] = k.Resource()
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(overridden), compareResources) {
		if stored[of] {
			continue
		}
		if home, ok := storedAs[of]; ok {
			return fmt.Errorf("--etcd-servers-overrides: %q: its objects are stored as %s; write that", overrideName(of), overrideName(home))
		}
		if meant, ok := closestStored(of, stored); ok {
			return fmt.Errorf("--etcd-servers-overrides: %q: no objects are stored under this name; did you mean %s?", overrideName(of), overrideName(meant))
		}
		if !strings.Contains(of.Group, ".") {
			return fmt.Errorf("--etcd-servers-overrides: %q: no objects are stored under this name; write GROUP/RESOURCE as /events or apps/deployments", overrideName(of))
		}
	}
	return nil
}

// closestStored returns the stored resource that a name was meant to be, if there is one: a
// similar one of the group or, if the group has no dot, the same one of another group.
func closestStored(of schema.GroupResource, stored map[schema.GroupResource]bool) (schema.GroupResource, bool) {
	var names []string
	all := slices.SortedFunc(maps.Keys(stored), compareResources)
	for _, candidate := range all {
		if candidate.Group == of.Group {
			names = append(names, candidate.Resource)
		}
	}
	if name := suggest.Closest(of.Resource, names); name != "" {
		return schema.GroupResource{Group: of.Group, Resource: name}, true
	}
	if strings.Contains(of.Group, ".") {
		return schema.GroupResource{}, false
	}
	i := slices.IndexFunc(all, func(candidate schema.GroupResource) bool { return candidate.Resource == of.Resource })
	if i < 0 {
		return schema.GroupResource{}, false
	}
	return all[i], true
}

// overrideName returns a resource as an entry names it.
func overrideName(r schema.GroupResource) string { return r.Group + "/" + r.Resource }

func compareResources(a, b schema.GroupResource) int {
	return strings.Compare(overrideName(a), overrideName(b))
}
