package convert

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// references brings the objects that an autoscaler names by their version to versions
// that the release serves: its target, and those of its metrics. Controllers look them up
// by that version.
func (c *Converter) references(o *Outcome, obj *yaml.Node, k *releases.Kind) {
	if k.Kind != "HorizontalPodAutoscaler" {
		return
	}
	c.reference(o, manifest.Get(obj, "spec", "scaleTargetRef"), "spec.scaleTargetRef")
	for i, metric := range manifest.Items(obj, "spec", "metrics") {
		for _, key := range []string{"describedObject", "target"} { // target is that of v2beta1
			c.reference(o, manifest.Get(metric, "object", key), fmt.Sprintf("spec.metrics[%d].object.%s", i, key))
		}
	}
}

func (c *Converter) reference(o *Outcome, ref *yaml.Node, path string) {
	at, kind := manifest.Get(ref, "apiVersion"), manifest.Text(ref, "kind")
	if manifest.IsNull(at) || kind == "" {
		return
	}
	gv, err := schema.ParseGroupVersion(at.Value)
	if err != nil {
		return
	}
	k := c.Table.Kind(gv.WithKind(kind))
	if k == nil || k.ServedAt(c.Release) || c.Release < k.Served.First {
		return
	}
	path += ".apiVersion"
	to := c.Table.Successor(k, c.Release)
	if to == nil || to.Kind != k.Kind {
		o.find(RemovedVersion, Error, Decide, at, path, removed(k)+withoutSuccessor(k, c.Release))
		return
	}
	o.find(RemovedVersion, Error, Rewrite, at, path, removed(k)+"; use "+name(to))
	o.Changes = append(o.Changes, Change{Line: lineOf(at), Path: path, Message: fmt.Sprintf("%s is %s", at.Value, to.GroupVersion())})
	manifest.SetText(at, to.GroupVersion().String())
}
