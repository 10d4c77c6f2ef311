package convert

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
)

// deviceClaim moves what v1beta1 says of a request for devices to its field exactly.
func deviceClaim(e *edit) { deviceRequests(e, manifest.Get(e.obj, "spec"), "spec") }

// deviceClaimTemplate is deviceClaim for the template of claims.
func deviceClaimTemplate(e *edit) {
	deviceRequests(e, manifest.Get(e.obj, "spec", "spec"), "spec.spec")
}

func deviceRequests(e *edit, spec *yaml.Node, path string) {
	for i, request := range manifest.Items(spec, "devices", "requests") {
		var moved []any
		for _, key := range keysOf(request) {
			if !slices.Contains([]string{"name", "firstAvailable", "exactly"}, key) {
				moved = append(moved, key, manifest.Delete(request, key))
			}
		}
		if len(moved) == 0 {
			continue
		}
		manifest.Set(request, "exactly", manifest.Map(moved...))
		e.changed(request, fmt.Sprintf("%s.devices.requests[%d]", path, i), "all but its name is in exactly")
	}
}

// deviceCapacity writes the quantities of v1alpha3 as the objects of v1beta1.
func deviceCapacity(e *edit) {
	for i, device := range manifest.Items(e.obj, "spec", "devices") {
		capacity := manifest.Get(device, "basic", "capacity")
		for _, name := range keysOf(capacity) {
			if value := manifest.Get(capacity, name); value.Kind == yaml.ScalarNode && !manifest.IsNull(value) {
				manifest.Set(capacity, name, manifest.Map("value", value))
				e.changed(manifest.Key(capacity, name), join(fmt.Sprintf("spec.devices[%d].basic.capacity", i), name), "the quantity is its value")
			}
		}
	}
}

// deviceSlice moves what v1beta1 has in the field basic of a device to the device.
func deviceSlice(e *edit) {
	for i, device := range manifest.Items(e.obj, "spec", "devices") {
		at := manifest.Key(device, "basic")
		basic := manifest.Delete(device, "basic")
		for _, key := range keysOf(basic) {
			manifest.Set(device, key, manifest.Get(basic, key))
		}
		if at != nil {
			e.changed(at, fmt.Sprintf("spec.devices[%d].basic", i), "its fields are those of the device")
		}
	}
}

// keysOf returns the keys of a mapping.
func keysOf(m *yaml.Node) []string {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	var keys []string
	for i := 0; i+1 < len(m.Content); i += 2 {
		keys = append(keys, m.Content[i].Value)
	}
	return keys
}
