package release

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/releases"
)

// runtimeConfig is the value of --runtime-config. The more specific key applies: a
// resource's before its version's before that of the version's stability.
type runtimeConfig struct {
	stabilities map[stability]bool
	versions    map[schema.GroupVersion]bool
	resources   map[schema.GroupVersionResource]bool
}

// NewServed returns the versions of the kinds that the release serves, as changed
// by the flag --runtime-config. Its keys are
//
//	api/all, api/ga, api/beta, api/alpha   all versions of that stability
//	v1, <group>/<version>                  all resources of the version
//	v1/<resource>, <group>/<version>/<resource>
//
// and its values true (also if omitted) or false. The more specific key applies.
// others are versions that are served without a declaration, such as
// apiextensions.k8s.io/v1. The error names every key that is unknown, has an invalid
// value, or enables a version that the release does not have.
func NewServed(r Release, config map[string]string, kinds []*resource.Kind, others ...schema.GroupVersion) (Served, error) {
	table, err := releases.LoadKinds()
	if err != nil {
		return Served{}, err
	}
	s := Served{release: r, table: table, fields: fields.New(r.inTable(), table), config: runtimeConfig{
		stabilities: map[stability]bool{},
		versions:    map[schema.GroupVersion]bool{},
		resources:   map[schema.GroupVersionResource]bool{},
	}}
	known := s.knownResources(kinds)
	for _, gv := range others {
		known[gv.WithResource("")] = true
	}
	var errs []error
	// Sorted, api/all comes before api/ga and the others, which override it.
	for _, key := range slices.Sorted(maps.Keys(config)) {
		on, err := parseSwitch(config[key])
		if err == nil {
			err = s.config.set(key, on, r, known)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--runtime-config: key %q: %w", key, err))
		}
	}
	return s, errors.Join(errs...)
}

// set adds one key. known is the result of knownResources.
func (c *runtimeConfig) set(key string, on bool, r Release, known map[schema.GroupVersionResource]bool) error {
	switch key {
	case "api/all":
		c.stabilities[ga], c.stabilities[beta], c.stabilities[alpha] = on, on, on
		return nil
	case "api/ga", "api/beta", "api/alpha":
		c.stabilities[stability(strings.TrimPrefix(key, "api/"))] = on
		return nil
	}
	gvr, err := parseKey(key)
	if err != nil {
		return err
	}
	exists, ok := known[gvr]
	if !ok {
		return errors.New("this server knows no such version or resource")
	}
	if on && !exists {
		return fmt.Errorf("release %s does not have it", r)
	}
	if gvr.Resource == "" {
		c.versions[gvr.GroupVersion()] = on
	} else {
		c.resources[gvr] = on
	}
	return nil
}

// parseKey parses <group>/<version>[/<resource>], where the core group has no name.
// The resource is empty for a whole version.
func parseKey(key string) (schema.GroupVersionResource, error) {
	parts := strings.Split(key, "/")
	if parts[0] == "v1" {
		parts = append([]string{""}, parts...)
	}
	switch len(parts) {
	case 2:
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1]}, nil
	case 3:
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
	default:
		return schema.GroupVersionResource{}, errors.New("a key is api/all, api/ga, api/beta, api/alpha, <group>/<version> or <group>/<version>/<resource>")
	}
}

func parseSwitch(value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("value %q is neither true nor false", value)
	}
	return on, nil
}

// knownResources returns all resources of the kinds in all versions and, with an
// empty resource, the versions. The value is whether the release has it.
func (s Served) knownResources(kinds []*resource.Kind) map[schema.GroupVersionResource]bool {
	known := map[schema.GroupVersionResource]bool{}
	add := func(gv schema.GroupVersion, name string, exists bool) {
		for _, gvr := range []schema.GroupVersionResource{gv.WithResource(name), gv.WithResource("")} {
			known[gvr] = known[gvr] || exists
		}
	}
	for _, k := range kinds {
		for _, gvk := range k.GVKs() {
			add(gvk.GroupVersion(), k.Name, s.has(gvk))
		}
	}
	return known
}
