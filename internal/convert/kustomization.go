package convert

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// kustomization converts what a kustomization says of objects that are converted, too: the
// targets of patches and replacements, which would match nothing, and inline patches.
func (c *Converter) kustomization(obj *yaml.Node) Outcome {
	o := Outcome{APIVersion: manifest.Text(obj, "apiVersion"), Kind: "Kustomization"}
	for i, patch := range manifest.Items(obj, "patchesStrategicMerge") {
		c.inlinePatch(&o, patch, fmt.Sprintf("patchesStrategicMerge[%d]", i))
	}
	for _, list := range []string{"patches", "patchesJson6902"} {
		for i, patch := range manifest.Items(obj, list) {
			path := fmt.Sprintf("%s[%d]", list, i)
			from, to := c.selector(&o, manifest.Get(patch, "target"), path+".target")
			inline := manifest.Get(patch, "patch")
			if list == "patchesJson6902" || c.isJSONPatch(patch, inline) {
				c.jsonPatch(&o, patch, path, from, to)
			} else if inline != nil {
				c.inlinePatch(&o, inline, path+".patch")
			}
		}
	}
	for i, replacement := range manifest.Items(obj, "replacements") {
		path := fmt.Sprintf("replacements[%d]", i)
		source := manifest.Get(replacement, "source")
		from, to := c.selector(&o, source, path+".source")
		c.fieldPaths(&o, manifest.Get(source, "fieldPath"), path+".source.fieldPath", from, to)
		for j, target := range manifest.Items(replacement, "targets") {
			path := fmt.Sprintf("%s.targets[%d]", path, j)
			from, to := c.selector(&o, manifest.Get(target, "select"), path+".select")
			c.fieldPaths(&o, manifest.Get(target, "fieldPaths"), path+".fieldPaths", from, to)
		}
	}
	for i, v := range manifest.Items(obj, "vars") {
		c.reference(&o, manifest.Get(v, "objref"), fmt.Sprintf("vars[%d].objref", i))
	}
	if len(o.Changes)+len(o.Findings) == 0 {
		return c.Object(obj) // which says why it is not checked
	}
	return o
}

// isJSONPatch reports whether a patch is a list of operations.
func (c *Converter) isJSONPatch(patch, inline *yaml.Node) bool {
	text := ""
	switch path := manifest.Text(patch, "path"); {
	case inline != nil:
		text = inline.Value
	case path != "":
		text = c.Kustomization(path)
	}
	documents, err := manifest.Parse("", text)
	return err == nil && slices.ContainsFunc(documents, func(d *manifest.Document) bool {
		return d.Root != nil && d.Root.Kind == yaml.SequenceNode
	})
}

// selector converts the group and the version of a selector of objects, and returns the
// kinds from and to which its objects are converted; nil if they are not.
func (c *Converter) selector(o *Outcome, selector *yaml.Node, path string) (from, to *releases.Kind) {
	kind, group, version := manifest.Text(selector, "kind"), manifest.Get(selector, "group"), manifest.Get(selector, "version")
	if kind == "" || group == nil && version == nil {
		return nil, nil
	}
	for i := range c.Table.Kinds {
		k := &c.Table.Kinds[i]
		if k.Kind != kind || group != nil && k.Group != group.Value || version != nil && k.Version != version.Value {
			continue
		}
		next, err := c.target(k)
		if err != nil || next == nil || to != nil && next != to {
			return nil, nil // it selects other objects, too
		}
		from, to = k, next
	}
	if to == nil {
		return nil, nil
	}
	at := version
	for _, part := range []struct {
		node *yaml.Node
		key  string
		now  string
	}{{group, "group", to.Group}, {version, "version", to.Version}} {
		if part.node == nil || part.node.Value == part.now {
			continue
		}
		at = part.node
		o.Changes = append(o.Changes, Change{Line: at.Line, Path: path + "." + part.key, Message: fmt.Sprintf("%s is %s, as the objects are converted", at.Value, part.now)})
		manifest.SetText(at, part.now)
	}
	if !from.ServedAt(c.Release) {
		o.find(RemovedVersion, Error, Rewrite, at, path, removed(from)+"; use "+name(to))
	}
	return from, to
}

// jsonPatch finds a JSON patch of objects whose fields change with their version: only the
// object that it is applied to tells what its paths become.
func (c *Converter) jsonPatch(o *Outcome, patch *yaml.Node, path string, from, to *releases.Kind) {
	if fieldsChange(from, to) {
		o.find(NotConvertible, Error, Decide, patch, path, fmt.Sprintf("the JSON patch is not converted: check its paths and values, as fields of %s differ in %s", name(from), name(to)))
	}
}

// fieldPaths finds the paths of a replacement in objects whose fields change with their version.
// Those of metadata do not.
func (c *Converter) fieldPaths(o *Outcome, paths *yaml.Node, path string, from, to *releases.Kind) {
	if paths == nil || !fieldsChange(from, to) {
		return
	}
	for _, at := range append([]*yaml.Node{paths}, paths.Content...) {
		if at.Kind == yaml.ScalarNode && !strings.HasPrefix(at.Value, "metadata.") {
			o.find(NotConvertible, Error, Decide, at, path, fmt.Sprintf("%s is not converted: check it, as fields of %s differ in %s", at.Value, name(from), name(to)))
		}
	}
}

// fieldsChange reports whether more than the apiVersion of objects changes from one kind to
// another, which is nil if they stay.
func fieldsChange(from, to *releases.Kind) bool {
	if to == nil {
		return false
	}
	steps := route(steps(), from.Kind, from.GroupVersion().String(), to.GroupVersion().String())
	return slices.ContainsFunc(steps, func(s step) bool { return s.apply != nil })
}

// inlinePatch converts the text of a strategic merge patch. Names of files, which
// patchesStrategicMerge has too, are not changed: like kustomize, it takes a text for the
// name of a file if it is no patch.
func (c *Converter) inlinePatch(o *Outcome, patch *yaml.Node, path string) {
	documents, err := manifest.Parse("", patch.Value)
	isMapping := func(d *manifest.Document) bool { return d.Root != nil && d.Root.Kind == yaml.MappingNode }
	if err == nil && !slices.ContainsFunc(documents, isMapping) || err != nil && c.Kustomization(patch.Value) != "" {
		return
	}
	of := *c
	of.Patch, of.Kustomization = true, nil
	text, outcomes, err := of.File("", patch.Value)
	if err != nil {
		o.find(NotConvertible, Error, Decide, patch, path, fmt.Sprintf("the patch is invalid: %v", err))
		return
	}
	if !strings.HasSuffix(patch.Value, "\n") {
		text = strings.TrimSuffix(text, "\n")
	}
	manifest.SetText(patch, text)
	before := patch.Line // the line before the text of a block
	if patch.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		before--
	}
	for _, inner := range outcomes {
		for _, change := range inner.Changes {
			change.Line, change.Path = before+change.Line, path+": "+change.Path
			o.Changes = append(o.Changes, change)
		}
		for _, f := range inner.Findings {
			f.Line, f.Path = before+f.Line, path+": "+f.Path
			o.Findings = append(o.Findings, f)
		}
	}
}
