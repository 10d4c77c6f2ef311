package convert

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// Level is how much a finding matters at the release.
type Level string

// The levels: a server refuses or ignores what is an Error, and accepts the others.
const (
	Error   Level = "error"
	Warning Level = "warning"
)

// Action is what a finding asks for.
type Action string

// The actions. A finding without one asks for nothing yet.
const (
	// Rewrite is a change that this package makes.
	Rewrite Action = "convert"
	// Decide is one that a person has to make.
	Decide Action = "decide"
)

// Finding is one thing about an object.
type Finding struct {
	Rule    Rule   `json:"rule"`
	Level   Level  `json:"level"`
	Action  Action `json:"action,omitempty"`
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// Change is one thing that has been rewritten.
type Change struct {
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// NoObject is why something is not checked that has no apiVersion or no kind.
const NoObject = "no object: it has no apiVersion and kind"

// Outcome is what is known of one object.
type Outcome struct {
	File       string `json:"file,omitempty"`
	Line       int    `json:"line,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// NotChecked is why the object was not checked; empty if it was.
	NotChecked string    `json:"notChecked,omitempty"`
	To         string    `json:"to,omitempty"` // the new apiVersion
	Changes    []Change  `json:"changes,omitempty"`
	Findings   []Finding `json:"findings,omitempty"`
	// Kept reports whether the changes are not written: another document of the file is
	// invalid, or the file cannot be written.
	Kept bool `json:"kept,omitempty"`
}

// Code is the exit code that the outcome asks for: 0, 1 if something has to be or has
// been converted, 2 if a decision remains.
func (o *Outcome) Code() int {
	code := 0
	if len(o.Changes) > 0 {
		code = 1
	}
	for _, f := range o.Findings {
		switch f.Action {
		case Decide:
			return 2
		case Rewrite:
			code = 1
		}
	}
	return code
}

// Converter converts objects.
type Converter struct {
	Table   *releases.Table
	Release releases.Release
	// Version is the version to convert objects of its group to; empty is the version
	// that the release wants.
	Version schema.GroupVersion
	// OnlyRemoved leaves deprecated versions as they are.
	OnlyRemoved bool
	// Patch reports whether the objects are patches: what they do not have is in the
	// object that they change, so nothing is written out and nothing is required.
	Patch bool
	// Kustomization is set for a kustomization: it returns the text of a file that this
	// refers to, empty if it cannot be read.
	Kustomization func(path string) string
}

// Object converts an object in place and returns what has been found and changed.
func (c *Converter) Object(obj *yaml.Node) Outcome {
	o := Outcome{
		APIVersion: manifest.Text(obj, "apiVersion"), Kind: manifest.Text(obj, "kind"),
		Namespace: manifest.Text(obj, "metadata", "namespace"), Name: manifest.Text(obj, "metadata", "name"),
	}
	if o.Name == "" && manifest.Text(obj, "metadata", "generateName") != "" {
		o.Name = manifest.Text(obj, "metadata", "generateName") + "*"
	}
	if o.APIVersion == "" || o.Kind == "" {
		o.NotChecked = NoObject
		return o
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		o.find(UnknownVersion, Error, Decide, manifest.Get(obj, "apiVersion"), "apiVersion", fmt.Sprintf("invalid apiVersion: %v", err))
		return o
	}
	if !c.Table.HasGroup(gv.Group) {
		o.NotChecked = "custom resource: no release of Kubernetes has the group " + gv.Group
		return o
	}
	k := c.Table.Kind(gv.WithKind(o.Kind))
	if k == nil {
		o.find(UnknownVersion, Error, Decide, manifest.Get(obj, "apiVersion"), "apiVersion", c.unknown(gv.WithKind(o.Kind)))
		return o
	}
	k = c.convert(&o, obj, k)
	if k != nil {
		c.references(&o, obj, k)
		w := walk{table: c.Table, release: c.Release, outcome: &o, patch: c.Patch}
		w.object(c.Table.Type(k), obj, "")
	}
	return o
}

// convert brings an object to the version that the release wants. It returns the kind
// that the object is now, or nil if the release does not have it.
func (c *Converter) convert(o *Outcome, obj *yaml.Node, k *releases.Kind) *releases.Kind {
	served := k.ServedAt(c.Release)
	to, err := c.target(k)
	at := manifest.Get(obj, "apiVersion")
	switch {
	case err != nil:
		o.find(UnknownVersion, Error, Decide, at, "apiVersion", err.Error())
		return nil
	case !served && c.Release < k.Served.First:
		o.find(MissingVersion, Error, Decide, at, "apiVersion", c.missing(k))
		return nil
	case to == nil && !served:
		o.find(RemovedVersion, Error, Decide, at, "apiVersion", removed(k)+withoutSuccessor(k, c.Release))
		return nil
	case to == nil:
		if k.DeprecatedAt(c.Release) {
			o.find(DeprecatedVersion, Warning, "", at, "apiVersion", c.deprecated(k))
		}
		o.offByDefault(k, at)
		return k
	}
	if wrong := c.wrongTypes(k, obj); len(wrong) > 0 {
		o.find(NotConvertible, Error, Decide, at, "apiVersion", fmt.Sprintf("%s is not converted: values have the wrong type", name(k)))
		o.Findings = append(o.Findings, wrong...)
		return nil
	}
	e := &edit{obj: obj, outcome: o, from: k, to: to, patch: c.Patch}
	if !e.run(steps()) {
		o.find(NotConvertible, Error, Decide, at, "apiVersion", fmt.Sprintf("%s cannot be converted to %s: write it again", name(k), name(to)))
		return nil
	}
	if !served {
		o.find(RemovedVersion, Error, Rewrite, at, "apiVersion", removed(k)+"; use "+name(to))
	}
	o.offByDefault(to, at)
	return to
}

// wrongTypes returns what is wrong with the types of values in an object of kind k.
func (c *Converter) wrongTypes(k *releases.Kind, obj *yaml.Node) []Finding {
	var o Outcome
	w := walk{table: c.Table, release: max(k.Served.Last, releases.Oldest), outcome: &o}
	w.object(c.Table.Type(k), obj, "")
	return slices.DeleteFunc(o.Findings, func(f Finding) bool { return f.Rule != WrongType })
}

// target returns the kind that an object of kind k is converted to, or nil if it stays.
func (c *Converter) target(k *releases.Kind) (*releases.Kind, error) {
	if c.Version.Group == k.Group && !c.Version.Empty() || c.Version.Version != "" && moved(c.Table, k, c.Version) {
		if c.Version == k.GroupVersion() {
			return nil, nil
		}
		to := c.Table.Kind(c.Version.WithKind(k.Kind))
		if to == nil || !to.ServedAt(c.Release) {
			return nil, fmt.Errorf("%v does not serve %s %s", c.Release, c.Version, k.Kind)
		}
		return to, nil
	}
	if k.ServedAt(c.Release) && (c.OnlyRemoved || !k.DeprecatedAt(c.Release)) {
		return nil, nil
	}
	to := c.Table.Successor(k, c.Release)
	if to != nil && to.Kind != k.Kind {
		return nil, nil // such as EndpointSlice for Endpoints: no conversion but another design
	}
	return to, nil
}

// moved reports whether kind k has gone to another group, of which gv is a version.
func moved(table *releases.Table, k *releases.Kind, gv schema.GroupVersion) bool {
	return k.Replacement.Group == gv.Group && k.Replacement.Group != k.Group && table.Kind(gv.WithKind(k.Kind)) != nil
}

func (o *Outcome) offByDefault(k *releases.Kind, at *yaml.Node) {
	if k.Off {
		o.find(OffByDefault, Warning, "", at, "apiVersion", fmt.Sprintf("%s is off by default: the server needs --runtime-config=%s=true", k.GroupVersion(), k.GroupVersion()))
	}
}

func (o *Outcome) find(rule Rule, level Level, action Action, at *yaml.Node, path, message string) {
	line := 0
	if at != nil {
		line = at.Line
	}
	o.Findings = append(o.Findings, Finding{Rule: rule, Level: level, Action: action, Line: line, Path: path, Message: message})
}

func name(k *releases.Kind) string { return k.GroupVersion().String() + " " + k.Kind }

// leaves reports whether a conversion has left a field as it was, and said why.
func (o *Outcome) leaves(path string) bool {
	return slices.ContainsFunc(o.Findings, func(f Finding) bool { return f.Path == path && f.Rule == NotConvertible })
}

func removed(k *releases.Kind) string {
	return fmt.Sprintf("%s is not served since %v", name(k), k.Served.Last+1)
}

func (c *Converter) deprecated(k *releases.Kind) string {
	message := fmt.Sprintf("%s is deprecated since %v", name(k), k.Deprecated)
	if k.Removed != 0 {
		message += fmt.Sprintf(" and not served from %v", k.Removed)
	}
	if to := c.Table.Instead(k, c.Release); to != nil {
		message += "; use " + name(to)
	} else if !k.Replacement.Empty() {
		message += fmt.Sprintf("; its successor is not in %v yet", c.Release)
	}
	return message
}

func withoutSuccessor(k *releases.Kind, r releases.Release) string {
	if k.Kind == "PodSecurityPolicy" {
		return ", with its admission plugin: use Pod Security Admission (labels of namespaces) or another admission controller"
	}
	if k.Replacement.Empty() {
		return ", and nothing replaces it"
	}
	return fmt.Sprintf(", and %v has nothing that replaces it", r)
}

// missing explains a kind that is newer than the release.
func (c *Converter) missing(k *releases.Kind) string {
	message := fmt.Sprintf("%s is new in %v", name(k), k.Served.First)
	for _, other := range c.Table.Versions(k.GroupKind()) {
		if other.ServedAt(c.Release) {
			return fmt.Sprintf("%s; %v serves %s", message, c.Release, name(other))
		}
	}
	return message
}

// unknown explains a kind that no release has.
func (c *Converter) unknown(gvk schema.GroupVersionKind) string {
	message := fmt.Sprintf("no release from %v to %v has %s %s", releases.Oldest, releases.Newest, gvk.GroupVersion(), gvk.Kind)
	for _, other := range c.Table.Versions(gvk.GroupKind()) {
		if other.ServedAt(c.Release) {
			return fmt.Sprintf("%s; %v serves %s", message, c.Release, name(other))
		}
	}
	return message
}
