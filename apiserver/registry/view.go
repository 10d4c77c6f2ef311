package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/patcherror"
	"svc.dev/svc/internal/footprint"
)

// viewREST serves a subresource that updates fields of the object itself, such as status.
type viewREST struct {
	resetFields
	store *genericregistry.Store
}

var (
	_ rest.Updater             = &viewREST{}
	_ rest.ResetFieldsStrategy = &viewREST{}
	_ rest.TableConvertor      = &viewREST{}
)

func newView(main *mainREST, view resource.KindView) rest.Storage {
	store := *main.Store
	store.UpdateStrategy = viewStrategy{strategy: main.strategy, view: view}
	store.BeginUpdate = nil
	v := &viewREST{resetFields: resets(main.kind, view.Resets...), store: &store}
	if view.NoPatch {
		return v
	}
	return &readableView{v}
}

// readableView is a view that can be read and patched, too.
type readableView struct{ *viewREST }

var _ rest.Patcher = &readableView{}

// Get implements rest.Getter.
func (v *readableView) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return v.store.Get(ctx, name, options)
}

// New implements rest.Storage.
func (v *viewREST) New() runtime.Object { return v.store.New() }

// Destroy implements rest.Storage; the store is the main resource's.
func (v *viewREST) Destroy() {}

// Update implements rest.Updater. It never creates.
func (v *viewREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	footprint.GrowStack() // the library writes in a goroutine of its own
	return v.store.Update(ctx, name, patcherror.Info(info), create, update, false, options)
}

// ConvertToTable implements rest.TableConvertor.
func (v *viewREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return v.store.ConvertToTable(ctx, obj, options)
}
