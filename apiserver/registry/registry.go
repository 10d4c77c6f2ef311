package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
)

// Registry holds the storage of all kinds.
type Registry struct {
	// Resources are in the order of the kinds.
	Resources []*Resource
	byName    map[schema.GroupResource]*Resource
}

// Resource is the REST storage of one kind: of the type itself under its name,
// and of each subresource under name/subresource.
type Resource struct {
	Kind    *resource.Kind
	Storage map[string]rest.Storage
	main    *mainREST
}

// New returns a registry without kinds.
func New() *Registry { return &Registry{byName: map[schema.GroupResource]*Resource{}} }

// Install makes the storage of the kinds. It is called once, before the first
// request.
func (r *Registry) Install(kinds []*resource.Kind, scheme *runtime.Scheme, options generic.RESTOptionsGetter, env *resource.Env) error {
	for _, kind := range kinds {
		if kind.Stored() && kind.NewList() == nil {
			return fmt.Errorf("resource type %s: the package of its Go type has no %sList, in which objects are listed", kind.Resource(), kind.Hub.Kind)
		}
		made, err := newResource(kind, scheme, options, env)
		if err != nil {
			return fmt.Errorf("resource type %s: %w", kind.Resource(), err)
		}
		if r.byName[kind.Resource()] != nil {
			return fmt.Errorf("resource type %s is declared twice", kind.Resource())
		}
		r.Resources = append(r.Resources, made)
		r.byName[kind.Resource()] = made
	}
	return nil
}

// Objects returns access to the objects of a resource type, or nil if there is
// no such type. It is what resource.Env.Objects is set to.
func (r *Registry) Objects(gr schema.GroupResource) resource.Objects {
	if found := r.byName[gr]; found != nil && found.main != nil {
		return found.main.objects()
	}
	return nil
}

// Destroy stops all stores.
func (r *Registry) Destroy() {
	for _, res := range r.Resources {
		if res.main != nil {
			res.main.Destroy()
		}
	}
}

func newResource(kind *resource.Kind, scheme *runtime.Scheme, options generic.RESTOptionsGetter, env *resource.Env) (*Resource, error) {
	if kind.Answer != nil {
		return &Resource{Kind: kind, Storage: map[string]rest.Storage{kind.Name: &virtualREST{kind: kind, env: env}}}, nil
	}
	if kind.Computed != nil {
		return &Resource{Kind: kind, Storage: map[string]rest.Storage{kind.Name: newComputed(kind, env)}}, nil
	}
	main, err := newMain(kind, scheme, options, env)
	if err != nil {
		return nil, err
	}
	storage := map[string]rest.Storage{kind.Name: main.served()}
	if kind.Status {
		storage[kind.Name+"/status"] = newView(main, resource.KindView{
			Name:     "status",
			Prepare:  main.strategy.prepareStatus,
			Validate: kind.ValidateStatus,
			Restrict: kind.RestrictStatus,
			Resets:   main.strategy.statusResets(),
		})
	}
	if kind.Scale != nil {
		storage[kind.Name+"/scale"] = &scaleREST{TableConvertor: tableOf(scaleColumns, env.Clock), main: main}
	}
	for _, v := range kind.Views {
		storage[kind.Name+"/"+v.Name] = newView(main, v)
	}
	for _, a := range kind.Actions {
		action, err := newAction(a, main, scheme, env)
		if err != nil {
			return nil, err
		}
		storage[kind.Name+"/"+a.Name] = action
	}
	for _, c := range kind.Connects {
		storage[kind.Name+"/"+c.Name] = newConnect(c, kind, env)
	}
	return &Resource{Kind: kind, Storage: storage, main: main}, nil
}

// virtualREST serves a virtual type: its objects are created and answered, not stored.
type virtualREST struct {
	kind *resource.Kind
	env  *resource.Env
}

var (
	_ rest.Creater              = &virtualREST{}
	_ rest.Scoper               = &virtualREST{}
	_ rest.SingularNameProvider = &virtualREST{}
)

func (v *virtualREST) New() runtime.Object     { return v.kind.New() }
func (v *virtualREST) Destroy()                {}
func (v *virtualREST) NamespaceScoped() bool   { return v.kind.Namespaced }
func (v *virtualREST) GetSingularName() string { return v.kind.Singular }

// Create implements rest.Creater.
func (v *virtualREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *createOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	return v.kind.Answer(ctx, v.env, obj, isDryRun(options.DryRun))
}
