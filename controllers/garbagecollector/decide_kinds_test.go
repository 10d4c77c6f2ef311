package garbagecollector

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/discovery"
)

func TestKindsOfDiscovery(t *testing.T) {
	all := []string{"get", "list", "watch", "delete", "patch"}
	resource := func(group, name, kind string, verbs ...string) discovery.Resource {
		return discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Kind: kind, Verbs: verbs}
	}
	broken := schema.GroupVersion{Group: "broken.example.com", Version: "v1"}
	ignored := map[schema.GroupKind]bool{{Kind: "Event"}: true}
	wanted := wanted(discovery.Snapshot{
		Resources: []discovery.Resource{
			resource("", "configmaps", "ConfigMap", all...),
			resource("", "events", "Event", all...),
			resource("", "bindings", "Binding", "create"),
			resource("", "pods/status", "Pod", all...),
			resource("metrics.example.com", "pods", "PodMetrics", "get", "list"),
			resource("two.example.com", "ones", "Number", all...),
			resource("two.example.com", "twos", "Number", all...),
			resource("odd.example.com", "views", "Thing", "get"),
			resource("odd.example.com", "things", "Thing", all...),
		},
		Failed: map[schema.GroupVersion]discovery.Failure{
			broken:                               {Err: errors.New("away"), Known: true, Last: []discovery.Resource{resource(broken.Group, "widgets", "Widget", all...)}},
			{Group: "unknown.io", Version: "v1"}: {Err: errors.New("never seen")},
		},
	}, ignored)
	var got []string
	for _, r := range slices.SortedFunc(maps.Values(wanted), func(a, b discovery.Resource) int {
		return slices.Compare([]string{a.Group, a.Resource}, []string{b.Group, b.Resource})
	}) {
		how := "watched"
		if !collectable(r, ignored) {
			how = "looked up"
		}
		got = append(got, how+" "+r.GroupResource().String())
	}
	want := []string{
		"watched configmaps",
		"looked up events",
		"watched widgets.broken.example.com", // it was known before
		"looked up pods.metrics.example.com",
		"watched things.odd.example.com", // not its second resource
		// The kind Number has two resources.
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
