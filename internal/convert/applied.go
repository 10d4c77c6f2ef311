package convert

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/internal/manifest"
	"svc.dev/svc/internal/releases"
)

// Live returns what is known of an object of a cluster: the manifest that was applied,
// and the versions in which clients have written it.
func (c *Converter) Live(gvk schema.GroupVersionKind, meta *metav1.ObjectMeta) Outcome {
	o := Outcome{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: meta.Namespace, Name: meta.Name}
	if applied := meta.Annotations[corev1.LastAppliedConfigAnnotation]; applied != "" {
		documents, err := manifest.Parse("", applied)
		if err != nil {
			o.find(NotConvertible, Warning, "", nil, "metadata.annotations", fmt.Sprintf("the annotation %s is invalid: %v", corev1.LastAppliedConfigAnnotation, err))
		}
		for _, d := range documents {
			for _, obj := range d.Objects() {
				o.Findings = append(o.Findings, c.Object(obj).Findings...)
			}
		}
		for i := range o.Findings {
			o.Findings[i].Line = 0
			o.Findings[i].Message = "in the manifest that was applied: " + o.Findings[i].Message
		}
	}
	if k := c.Table.Kind(gvk); k != nil && !k.ServedAt(c.Release) && !c.servesAnother(k) {
		rule, message := RemovedVersion, removed(k)+withoutSuccessor(k, c.Release)
		if c.Release < k.Served.First {
			rule, message = MissingVersion, c.missing(k)
		}
		o.find(rule, Error, Decide, nil, "apiVersion", message+": the object is out of reach then")
	}
	seen := map[string]bool{}
	for _, f := range meta.ManagedFields {
		gv, err := schema.ParseGroupVersion(f.APIVersion)
		if err != nil || seen[f.Manager+" "+f.APIVersion] {
			continue
		}
		seen[f.Manager+" "+f.APIVersion] = true
		if k := c.Table.Kind(gv.WithKind(gvk.Kind)); k != nil && c.Release > k.Served.Last {
			when := ""
			if f.Time != nil {
				when = " at " + f.Time.UTC().Format("2006-01-02T15:04:05Z")
			}
			o.find(LiveVersion, Warning, "", nil, "metadata.managedFields", fmt.Sprintf("%q has written it as %s%s, which is not served since %v", f.Manager, f.APIVersion, when, k.Served.Last+1))
		}
	}
	return o
}

// Lacks reports whether the release serves a kind, but not all fields, or values of fields,
// that its objects have at other releases: then Fields may find something.
func (c *Converter) Lacks(gvk schema.GroupVersionKind) bool {
	k := c.Table.Kind(gvk)
	return k != nil && k.ServedAt(c.Release) && c.lacks(c.Table.Type(k), map[*releases.Type]bool{})
}

func (c *Converter) lacks(t *releases.Type, seen map[*releases.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	for i := range t.Fields {
		f := &t.Fields[i]
		if isOfServer(f.Name) && f.Type != "" && !f.Enum {
			continue
		}
		if _, has := t.Field(f.Name, c.Release); !has || c.lacks(c.Table.TypeOf(t, f), seen) {
			return true
		}
	}
	return false
}

// isOfServer reports whether a field of an object is written by the server or by controllers.
func isOfServer(name string) bool { return name == "metadata" || name == "status" }

// Fields adds what an object of a cluster has and the release has not: fields, and values of
// fields. The server keeps it until something writes the object. What the server itself
// writes does not count; defaults do.
func (c *Converter) Fields(o *Outcome, gvk schema.GroupVersionKind, obj *yaml.Node) {
	k := c.Table.Kind(gvk)
	if k == nil || obj.Kind != yaml.MappingNode {
		return
	}
	own := *obj
	own.Content = nil
	for i := 0; i+1 < len(obj.Content); i += 2 {
		if !isOfServer(obj.Content[i].Value) {
			own.Content = append(own.Content, obj.Content[i], obj.Content[i+1])
		}
	}
	var found Outcome
	w := walk{table: c.Table, release: c.Release, outcome: &found}
	w.object(c.Table.Type(k), &own, "")
	for _, f := range found.Findings {
		if f.Rule == MissingField || f.Rule == MissingValue {
			o.find(f.Rule, Warning, "", nil, f.Path, "in the object of the cluster: "+f.Message)
		}
	}
}

// servesAnother reports whether the release serves the objects of a kind in another version.
func (c *Converter) servesAnother(k *releases.Kind) bool {
	if slices.ContainsFunc(c.Table.Versions(k.GroupKind()), func(other *releases.Kind) bool { return other.ServedAt(c.Release) }) {
		return true
	}
	to := c.Table.Successor(k, c.Release)
	return to != nil && to.Kind == k.Kind
}

// Requested returns what is known of requests for a resource that a server has counted
// as deprecated, by the release that it names as the one that removes it; ok is false
// if the release still serves it.
func (c *Converter) Requested(gvr schema.GroupVersionResource, subresource, removedRelease string) (o Outcome, ok bool) {
	var major, minor int
	if _, err := fmt.Sscanf(removedRelease, "%d.%d", &major, &minor); err != nil || major != 1 || int(c.Release) < minor {
		return Outcome{}, false
	}
	o = Outcome{APIVersion: gvr.GroupVersion().String(), Kind: strings.TrimSuffix(gvr.Resource+"/"+subresource, "/")}
	o.find(RequestedVersion, Error, Decide, nil, "apiserver_requested_deprecated_apis", fmt.Sprintf("clients have requested %s %s since the server started, which is not served since %s; the audit log names them", gvr.GroupVersion(), o.Kind, removedRelease))
	return o, true
}
