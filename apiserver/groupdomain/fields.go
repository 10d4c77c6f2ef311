package groupdomain

import (
	"reflect"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// node says which strings of a document name a group. A document that no node
// describes stays as it is.
type node struct {
	// translate returns the translation of a string, which is that of the member kind of
	// the object around it if that was read before.
	translate func(text, kind string) string
	members   map[string]*node
	elements  *node
}

// member returns the node of a member of an object, and adds it if it is missing.
func (n *node) member(name string) *node {
	if n.members == nil {
		n.members = map[string]*node{}
	}
	if n.members[name] == nil {
		n.members[name] = &node{}
	}
	return n.members[name]
}

// at returns the node at a path such as rules[].apiGroups[], and adds it if it is
// missing.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, ".") {
		name, depth := strings.TrimRight(name, "[]"), strings.Count(name, "[]")
		n = n.member(name)
		for range depth {
			if n.elements == nil {
				n.elements = &node{}
			}
			n = n.elements
		}
	}
	return n
}

// everyObject are the fields of all objects that name a group.
var everyObject = []string{"apiVersion", "metadata.ownerReferences[].apiVersion", "metadata.managedFields[].apiVersion"}

// namedByGroup are the fields of objects whose names end with a group: their kinds are
// the libraries'.
var namedByGroup = map[schema.GroupResource][]string{
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: {"metadata.name", "spec.group"},
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:             {"metadata.name", "spec.group"},
}

// object returns the node of the objects of a resource. types are the Go types of what
// its requests and responses hold, if they are compiled in.
func (d direction) object(gr schema.GroupResource, types ...reflect.Type) *node {
	root := &node{}
	for _, t := range types {
		root.merge(d.typeNode(t, map[reflect.Type]*node{}))
	}
	for _, path := range slices.Concat(everyObject, namedByGroup[gr]) {
		root.at(path).translate = d.field(path)
	}
	return root
}

// merge adds the members of another node.
func (n *node) merge(other *node) {
	if other == nil {
		return
	}
	for name, member := range other.members {
		n.member(name).merge(member)
	}
	if other.elements != nil {
		if n.elements == nil {
			n.elements = &node{}
		}
		n.elements.merge(other.elements)
	}
	if other.translate != nil {
		n.translate = other.translate
	}
}

// typeNode returns the node of a Go type of the API, or nil if no field of it names a
// group. made are the nodes of the types around it.
func (d direction) typeNode(t reflect.Type, made map[reflect.Type]*node) *node {
	switch t.Kind() {
	case reflect.Pointer:
		return d.typeNode(t.Elem(), made)
	case reflect.Slice:
		if elements := d.typeNode(t.Elem(), made); elements != nil {
			return &node{elements: elements}
		}
		return nil
	case reflect.Struct:
	default:
		return nil
	}
	if n, ok := made[t]; ok {
		return n
	}
	n := &node{}
	made[t] = nil // a type within itself names no group: schemas are the libraries' alone
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if translate := d.typeField(t, name); translate != nil {
			n.member(name).addText(field.Type, translate)
		} else if child := d.typeNode(field.Type, made); child == nil {
			continue
		} else if name == "" {
			n.merge(child) // inline
		} else {
			n.member(name).merge(child)
		}
	}
	if len(n.members) == 0 {
		n = nil
	}
	made[t] = n
	return n
}

// addText sets the translation of a string, or of the strings of a list.
func (n *node) addText(t reflect.Type, translate func(text, kind string) string) {
	if t.Kind() == reflect.Slice {
		n.elements = &node{translate: translate}
		return
	}
	n.translate = translate
}

// namesGroup are the types with a member named group that is that of an API.
var namesGroup = []reflect.Type{reflect.TypeFor[authorizationv1.ResourceAttributes](), reflect.TypeFor[networkingv1.ParentReference]()}

// typeField returns the translation of a member of a type, or nil.
func (d direction) typeField(t reflect.Type, name string) func(text, kind string) string {
	switch {
	case name == "apiVersion" && t == reflect.TypeFor[corev1.ObjectFieldSelector]():
		return nil // of the object around it, in the form of a version alone
	case name == "apiVersion", name == "apiGroup", name == "apiGroups", name == "group" && slices.Contains(namesGroup, t):
		return d.field("." + name)
	}
	return nil
}

// field returns the translation of the field at a path.
func (d direction) field(path string) func(text, kind string) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case path == "apiVersion":
		return d.objectVersion
	case last == "apiVersion":
		return func(text, _ string) string { return d.apiVersion(text) }
	case last == "name":
		return func(text, _ string) string { return d.qualified(text) }
	}
	rule := strings.HasPrefix(last, "apiGroups")
	return func(text, _ string) string {
		// A rule names the core group, and with * all. Elsewhere it is not named.
		if rule && text == "*" || !rule && text == "" {
			return text
		}
		return d.group(text)
	}
}

// unversioned are kinds of no group, whose apiVersion is v1 everywhere.
var unversioned = []string{"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "List", "Status"}

// commonGroups are the groups of documents that are of no resource, without their domain:
// tables and metadata, and aggregated discovery. Filter alias translates them.
var commonGroups = []string{"meta", "apidiscovery"}

// isCommon reports whether a group is one of documents that are of no resource.
func (n *Names) isCommon(group string) bool {
	name, domain, _ := strings.Cut(group, ".")
	return slices.Contains(commonGroups, name) && slices.Contains([]string{kubernetes, defaultDomain, n.domain}, domain)
}

// objectVersion translates the apiVersion of a whole document.
func (d direction) objectVersion(apiVersion, kind string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	if d.names.isCommon(group) || apiVersion == "v1" && slices.Contains(unversioned, kind) {
		return apiVersion
	}
	return d.apiVersion(apiVersion)
}

// kindGroup translates the group of a kind.
func (d direction) kindGroup(gvk schema.GroupVersionKind) string {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return schema.FromAPIVersionAndKind(d.objectVersion(apiVersion, kind), kind).Group
}

// response returns the node of what a server answers with: an object, the event of a
// watch, a list or a table of objects, or the status of a deletion.
func response(object *node) *node {
	root := &node{members: map[string]*node{}}
	for name, member := range object.members {
		root.members[name] = member
	}
	root.members["object"] = root                   // of an event: it may be a table
	root.members["items"] = &node{elements: object} // of a list
	root.members["rows"] = &node{elements: &node{members: map[string]*node{"object": object}}}
	return root
}
