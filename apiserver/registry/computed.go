package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
)

// computedREST serves a kind whose objects are computed for each request, not stored.
type computedREST struct {
	rest.TableConvertor
	kind *resource.Kind
	env  *resource.Env
}

var (
	_ rest.Getter               = &computedREST{}
	_ rest.Lister               = &computedREST{}
	_ rest.Scoper               = &computedREST{}
	_ rest.SingularNameProvider = &computedREST{}
	_ rest.ShortNamesProvider   = &computedREST{}
	_ rest.CategoriesProvider   = &computedREST{}
)

func newComputed(kind *resource.Kind, env *resource.Env) *computedREST {
	return &computedREST{TableConvertor: newTable(kind, env.Clock), kind: kind, env: env}
}

func (c *computedREST) New() runtime.Object     { return c.kind.New() }
func (c *computedREST) NewList() runtime.Object { return c.kind.NewList() }
func (c *computedREST) Destroy()                {}
func (c *computedREST) NamespaceScoped() bool   { return c.kind.Namespaced }
func (c *computedREST) GetSingularName() string { return c.kind.Singular }
func (c *computedREST) ShortNames() []string    { return c.kind.ShortNames }
func (c *computedREST) Categories() []string    { return c.kind.Categories }

// Get implements rest.Getter.
func (c *computedREST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return c.kind.Computed.Get(ctx, c.env, request.NamespaceValue(ctx), name)
}

// List implements rest.Lister. It returns all objects and ignores the limit of
// the request.
func (c *computedREST) List(ctx context.Context, options *internalListOptions) (runtime.Object, error) {
	selection := resource.Selection{Namespace: request.NamespaceValue(ctx), Labels: labels.Everything(), Fields: fields.Everything()}
	if options != nil && options.LabelSelector != nil {
		selection.Labels = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		selection.Fields = options.FieldSelector
	}
	found, err := c.kind.Computed.List(ctx, c.env, selection)
	if err != nil {
		return nil, err
	}
	list := c.kind.NewList()
	return list, meta.SetList(list, found)
}
