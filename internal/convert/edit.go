package convert

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// step rewrites objects of some kinds from one of some versions to another.
type step struct {
	kinds []string
	from  []string
	to    string
	apply func(*edit) // nil changes the apiVersion only
}

// edit is the rewriting of one object.
type edit struct {
	obj      *yaml.Node
	outcome  *Outcome
	from, to *releases.Kind
	patch    bool // see Converter.Patch
	// version is the apiVersion that the object has before the present step.
	version string
}

// run takes the steps from the object's version to the wanted one. Without any, only
// the apiVersion changes. It reports whether there is a way.
func (e *edit) run(steps []step) bool {
	path := route(steps, e.from.Kind, e.from.GroupVersion().String(), e.to.GroupVersion().String())
	if path == nil && (e.from.Group != e.to.Group || releases.CompareVersions(e.from.Version, e.to.Version) > 0) {
		return false
	}
	at := manifest.Get(e.obj, "apiVersion")
	e.version = at.Value
	for _, s := range path {
		if s.apply != nil {
			s.apply(e)
		}
		e.version = s.to
	}
	e.changed(at, "apiVersion", "%s is %s", at.Value, e.to.GroupVersion())
	manifest.SetText(at, e.to.GroupVersion().String())
	e.outcome.To = at.Value
	return true
}

// route returns the shortest way between two versions, or nil.
func route(steps []step, kind, from, to string) []step {
	type way struct {
		at    string
		steps []step
	}
	for open, seen := []way{{at: from}}, map[string]bool{from: true}; len(open) > 0; open = open[1:] {
		for _, s := range steps {
			if !slices.Contains(s.kinds, kind) || !slices.Contains(s.from, open[0].at) || seen[s.to] {
				continue
			}
			next := way{s.to, append(slices.Clone(open[0].steps), s)}
			if s.to == to {
				return next.steps
			}
			seen[s.to] = true
			open = append(open, next)
		}
	}
	return nil
}

// changed notes what has been rewritten at a node.
func (e *edit) changed(at *yaml.Node, path, format string, args ...any) {
	e.outcome.Changes = append(e.outcome.Changes, Change{Line: lineOf(at), Path: path, Message: fmt.Sprintf(format, args...)})
}

// decide notes what a person has to decide about a node.
func (e *edit) decide(at *yaml.Node, path, format string, args ...any) {
	e.outcome.find(NotConvertible, Error, Decide, at, path, fmt.Sprintf(format, args...))
}

// differs notes that an object with only another apiVersion would mean something else.
func (e *edit) differs(at *yaml.Node, path, format string, args ...any) {
	e.outcome.find(ChangedDefault, Warning, Rewrite, at, path, fmt.Sprintf(format, args...))
}

func lineOf(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return n.Line
}

// keep writes out the default of the old version where the new one has another.
func (e *edit) keep(in *yaml.Node, path, key string, value *yaml.Node, now string) {
	if e.patch || in == nil || in.Kind != yaml.MappingNode || !manifest.IsNull(manifest.Get(in, key)) {
		return
	}
	manifest.Set(in, key, value)
	text := value.Value
	if value.Kind == yaml.SequenceNode {
		text = "[" + value.Content[0].Value + "]"
	}
	e.changed(in, join(path, key), "the default of %s, %s, is written out: %s", e.version, text, now)
	e.differs(in, join(path, key), "the default of %s is %s: %s", e.version, text, now)
}

// deleteAnnotation removes an annotation of an object, and the mapping if no other is left.
func deleteAnnotation(obj *yaml.Node, key string) {
	meta := manifest.Get(obj, "metadata")
	annotations := manifest.Get(meta, "annotations")
	if manifest.Delete(annotations, key) != nil && len(annotations.Content) == 0 {
		manifest.Delete(meta, "annotations")
	}
}

// rename gives a key another name.
func (e *edit) rename(in *yaml.Node, path, from, to string) {
	if manifest.Rename(in, from, to) {
		e.changed(manifest.Key(in, to), join(path, from), "renamed %s", to)
	}
}
