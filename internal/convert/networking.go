package convert

import (
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/internal/manifest"
)

func ingress(e *edit) {
	spec := manifest.Get(e.obj, "spec")
	e.rename(spec, "spec", "backend", "defaultBackend")
	backend(e, manifest.Get(spec, "defaultBackend"), "spec.defaultBackend")
	for i, rule := range manifest.Items(spec, "rules") {
		for j, path := range manifest.Items(manifest.Get(rule, "http"), "paths") {
			at := fmt.Sprintf("spec.rules[%d].http.paths[%d]", i, j)
			backend(e, manifest.Get(path, "backend"), at+".backend")
			// In a patch, too: the lists of rules and paths replace those of the object.
			if manifest.IsNull(manifest.Get(path, "pathType")) {
				manifest.SetAfter(path, "path", "pathType", manifest.String("ImplementationSpecific"))
				e.changed(path, at+".pathType", "required in v1: the default of %s, ImplementationSpecific, is written out", e.version)
			}
		}
	}
}

// backend brings the name and the port of a service into the form of v1.
func backend(e *edit, b *yaml.Node, path string) {
	name, port := manifest.Get(b, "serviceName"), manifest.Get(b, "servicePort")
	if name == nil && port == nil {
		return
	}
	line := manifest.Key(b, "serviceName")
	manifest.Delete(b, "serviceName")
	manifest.Delete(b, "servicePort")
	service := manifest.Map("name", name)
	if !manifest.IsNull(port) {
		key := "name"
		if _, err := strconv.Atoi(port.Value); err == nil {
			key = "number"
			port.Tag, port.Style = "!!int", 0 // "80" in quotes is no name of a port
		}
		manifest.Set(service, "port", manifest.Map(key, port))
	}
	manifest.SetFirst(b, "service", service)
	e.changed(line, path, "serviceName and servicePort are service.name and service.port")
}

// endpointSlice replaces the topology keys.
func endpointSlice(e *edit) {
	for i, endpoint := range manifest.Items(e.obj, "endpoints") {
		path := fmt.Sprintf("endpoints[%d]", i)
		topology := manifest.Get(endpoint, "topology")
		for _, key := range [][2]string{{"kubernetes.io/hostname", "nodeName"}, {"topology.kubernetes.io/zone", "zone"}} {
			value := manifest.Delete(topology, key[0])
			if value == nil {
				continue
			}
			if manifest.IsNull(manifest.Get(endpoint, key[1])) {
				manifest.Set(endpoint, key[1], value)
			}
			e.changed(value, join(path+".topology", key[0]), "moved to %s", key[1])
		}
		if topology == nil {
			continue
		}
		for j := 0; j+1 < len(topology.Content); j += 2 {
			e.decide(topology.Content[j], join(path+".topology", topology.Content[j].Value), "removed: no client can write other topology in v1 (deprecatedTopology is read-only)")
		}
		manifest.Delete(endpoint, "topology")
	}
}

// microTime gives a time the six decimals of seconds that a MicroTime must have. What is no
// time stays as it is: the server refuses it in either version.
func microTime(value *yaml.Node) *yaml.Node {
	if manifest.IsNull(value) {
		return value
	}
	if t, err := time.Parse(time.RFC3339, value.Value); err == nil {
		manifest.SetText(value, t.Format(metav1.RFC3339Micro))
	}
	return value
}

// event moves what the old form of events says to the fields of the new one.
func event(e *edit) {
	move := func(value *yaml.Node, from, to string) {
		if value == nil {
			return
		}
		if manifest.IsNull(manifest.Get(e.obj, to)) {
			manifest.Set(e.obj, to, value)
			e.changed(value, from, "moved to %s", to)
			return
		}
		e.changed(value, from, "removed: not permitted on new events, and %s is there", to)
	}
	source := manifest.Delete(e.obj, "deprecatedSource")
	move(manifest.Get(source, "component"), "deprecatedSource.component", "reportingController")
	move(manifest.Get(source, "host"), "deprecatedSource.host", "reportingInstance")
	move(microTime(manifest.Delete(e.obj, "deprecatedFirstTimestamp")), "deprecatedFirstTimestamp", "eventTime")
	count, last := manifest.Delete(e.obj, "deprecatedCount"), microTime(manifest.Delete(e.obj, "deprecatedLastTimestamp"))
	if manifest.IsNull(manifest.Get(e.obj, "series")) && count != nil && last != nil && count.Value != "1" {
		manifest.Set(e.obj, "series", manifest.Map("count", count, "lastObservedTime", last))
		e.changed(count, "deprecatedCount", "moved to series.count, deprecatedLastTimestamp to series.lastObservedTime")
	} else if count != nil || last != nil {
		e.changed(manifest.Key(e.obj, "kind"), "deprecatedCount", "removed, with deprecatedLastTimestamp: not permitted on new events")
	}
	manifest.Delete(manifest.Get(e.obj, "series"), "state")
	if e.patch {
		return
	}
	for _, key := range []string{"action", "reason", "reportingController", "reportingInstance", "eventTime"} {
		if manifest.Text(e.obj, key) == "" {
			e.decide(manifest.Key(e.obj, "kind"), key, "required in v1")
		}
	}
	if kind := manifest.Text(e.obj, "type"); kind != "Normal" && kind != "Warning" {
		e.decide(manifest.Get(e.obj, "type"), "type", "must be Normal or Warning in v1")
	}
}
