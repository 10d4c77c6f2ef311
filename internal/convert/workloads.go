package convert

import (
	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
)

// unlimited is what extensions/v1beta1 took for no limit.
const unlimited = 1<<31 - 1

func deployment(e *edit) {
	spec := selector(e)
	if spec == nil {
		return
	}
	if rollback := manifest.Key(spec, "rollbackTo"); rollback != nil {
		e.changed(rollback, "spec.rollbackTo", "removed: \"kubectl rollout undo\" goes back to a revision")
		manifest.Delete(spec, "rollbackTo")
	}
	switch e.version {
	case appsV1beta1:
		e.keep(spec, "spec", "revisionHistoryLimit", manifest.Int(2), "it is 10 in apps/v1")
	case extensionsV1beta1:
		e.keep(spec, "spec", "progressDeadlineSeconds", manifest.Int(unlimited), "it is 600 in apps/v1")
		e.keep(spec, "spec", "revisionHistoryLimit", manifest.Int(unlimited), "it is 10 in apps/v1")
		if kind := manifest.Text(spec, "strategy", "type"); !e.patch && (kind == "" || kind == "RollingUpdate") {
			rolling := manifest.Ensure(manifest.Ensure(spec, "strategy"), "rollingUpdate")
			e.keep(rolling, "spec.strategy.rollingUpdate", "maxSurge", manifest.Int(1), "it is 25% in apps/v1")
			e.keep(rolling, "spec.strategy.rollingUpdate", "maxUnavailable", manifest.Int(1), "it is 25% in apps/v1")
		}
	}
}

func daemonSet(e *edit) {
	spec := selector(e)
	if spec == nil {
		return
	}
	if generation := manifest.Key(spec, "templateGeneration"); generation != nil {
		e.changed(generation, "spec.templateGeneration", "removed: the server counts it")
		manifest.Delete(spec, "templateGeneration")
	}
	if e.version == extensionsV1beta1 {
		onDelete(e, spec)
	}
}

func statefulSet(e *edit) {
	if spec := selector(e); spec != nil && e.version == appsV1beta1 {
		onDelete(e, spec)
	}
}

func replicaSet(e *edit) { selector(e) }

func onDelete(e *edit, spec *yaml.Node) {
	if e.patch {
		return
	}
	e.keep(manifest.Ensure(spec, "updateStrategy"), "spec.updateStrategy", "type", manifest.String("OnDelete"), "it is RollingUpdate in apps/v1")
}

// selector writes out the selector, and the labels of the object, that the old versions
// take from the template. It returns the spec, or nil if there is none.
func selector(e *edit) *yaml.Node {
	spec := manifest.Get(e.obj, "spec")
	if e.patch {
		return spec
	}
	if manifest.IsNull(spec) {
		e.decide(e.obj, "spec", "the object has no spec")
		return nil
	}
	labels := manifest.Get(spec, "template", "metadata", "labels")
	if manifest.IsNull(manifest.Get(spec, "selector")) {
		if labels == nil || len(labels.Content) == 0 {
			e.decide(manifest.Key(e.obj, "spec"), "spec.selector", "required in apps/v1, and the template has no labels to take it from")
			return spec
		}
		manifest.Delete(spec, "selector")
		manifest.SetAfter(spec, "replicas", "selector", manifest.Map("matchLabels", copyOf(labels)))
		e.changed(manifest.Key(e.obj, "spec"), "spec.selector", "required in apps/v1: the labels of the template are written out; it cannot be changed later")
	}
	if meta := manifest.Get(e.obj, "metadata"); e.version != appsV1beta2 && labels != nil && len(labels.Content) > 0 && meta != nil && manifest.IsNull(manifest.Get(meta, "labels")) {
		manifest.Delete(meta, "labels")
		manifest.SetAfter(meta, "name", "labels", copyOf(labels))
		e.changed(manifest.Key(e.obj, "metadata"), "metadata.labels", "the default of %s, the labels of the template, is written out", e.version)
	}
	return spec
}

// copyOf returns a copy without comments.
func copyOf(n *yaml.Node) *yaml.Node {
	c := manifest.Clone(n)
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(c)
	return c
}
