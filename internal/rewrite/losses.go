package rewrite

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/losses"
)

// chunk is how many objects are listed at a time.
const chunk = 500

// Loss is what a release would lose of an object.
type Loss struct {
	Resource        schema.GroupResource
	Namespace, Name string
	// What are the paths of fields, or losses.WholeObject.
	What []string
}

// Losses returns what a release would lose of the objects of a resource, which has a
// declaration among the kinds or is that of definitions. Custom resources, which are
// neither, lose nothing.
func (r *Rewriter) Losses(ctx context.Context, gvr schema.GroupVersionResource, kinds []*resource.Kind, finder *losses.Finder) ([]Loss, error) {
	if gvr.GroupResource() == definitions {
		return r.lossesOfDefinitions(ctx, finder)
	}
	kind := declared(kinds, gvr)
	if kind == nil {
		return nil, nil
	}
	var found []Loss
	options := metav1.ListOptions{Limit: chunk}
	for {
		list, err := r.objects.Resource(gvr).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			text, err := item.MarshalJSON()
			if err != nil {
				return nil, err
			}
			what, err := finder.OfEncoded(kind, text)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", gvr.GroupResource(), item.GetName(), err)
			}
			if len(what) > 0 {
				found = append(found, Loss{gvr.GroupResource(), item.GetNamespace(), item.GetName(), what})
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return found, nil
		}
	}
}

// definitions are the definitions of custom resources.
var definitions = schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}

func (r *Rewriter) lossesOfDefinitions(ctx context.Context, finder *losses.Finder) ([]Loss, error) {
	var found []Loss
	options := metav1.ListOptions{Limit: chunk}
	for {
		list, err := r.extensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", definitions, err)
		}
		for i := range list.Items {
			what, err := finder.OfDefinition(&list.Items[i])
			if err != nil {
				return nil, err
			}
			if len(what) > 0 {
				found = append(found, Loss{Resource: definitions, Name: list.Items[i].Name, What: what})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// declared returns the kind of a resource in one of its versions, or nil.
func declared(kinds []*resource.Kind, gvr schema.GroupVersionResource) *resource.Kind {
	for _, k := range kinds {
		for _, gvk := range k.GVKs() {
			if k.Stored() && k.Name == gvr.Resource && gvk.GroupVersion() == gvr.GroupVersion() {
				return k
			}
		}
	}
	return nil
}

// String returns a line for a person.
func (l Loss) String() string {
	name := l.Name
	if l.Namespace != "" {
		name = l.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s: %s", l.Resource, name, strings.Join(l.What, ", "))
}
