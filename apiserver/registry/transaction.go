package registry

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/errorlimit"
	"svc.dev/svc/apiserver/patcherror"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/footprint"
)

// transaction calls the hooks BeginCreate and BeginUpdate for one request, each
// after the object was prepared and validated, and their finish function after
// the write. The store itself calls its hooks before validation, and finishes
// them with success before it writes.
type transaction struct {
	finish func(ok bool) // of the attempt in flight
	// writing is set when all checks have passed and only the write can fail.
	writing bool
}

type transactionKey struct{}

// begin starts an attempt. The store retries only after a conflict, so the
// attempt before it was not written.
func (t *transaction) begin(begin func() (func(ok bool), error)) error {
	t.end(false)
	finish, err := begin()
	if err != nil {
		return err
	}
	t.finish = finish
	return nil
}

func (t *transaction) end(ok bool) {
	if t.finish != nil {
		t.finish(ok)
	}
	*t = transaction{}
}

// conclude ends the transaction with the store's error. If a write failed on the
// way to etcd or back, it may have happened: then finish is not called.
func (t *transaction) conclude(err error) {
	if err == nil || !t.writing || refused(err) {
		t.end(err == nil)
	}
}

// refused reports whether an error means that the request was not carried out.
// Other errors can mean that only its answer was lost.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, new(storage.RefusedError)) || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError
}

// setHooks sets the kind's hooks on the store. Objects are prepared and validated
// before a hook; the store does both again after it, which changes nothing.
func setHooks(store *genericregistry.Store, s *strategy, env *resource.Env) {
	kind := s.kind
	if kind.BeginCreate != nil {
		store.BeginCreate = func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
			s.PrepareForCreate(ctx, obj)
			if err := s.invalid(obj, s.validateObject(ctx, obj, nil)); err != nil {
				return nil, err
			}
			return finishNothing, transactionOf(ctx).begin(func() (func(bool), error) {
				return kind.BeginCreate(ctx, env, obj, isDryRun(options.DryRun))
			})
		}
	}
	if kind.BeginUpdate != nil {
		store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
			s.PrepareForUpdate(ctx, obj, old)
			if err := s.invalid(obj, s.validateObject(ctx, obj, old)); err != nil {
				return nil, err
			}
			return finishNothing, transactionOf(ctx).begin(func() (func(bool), error) {
				return kind.BeginUpdate(ctx, env, obj, old, isDryRun(options.DryRun))
			})
		}
	}
	if kind.AfterDelete != nil {
		store.AfterDelete = func(obj runtime.Object, options *metav1.DeleteOptions) {
			if !isDryRun(options.DryRun) {
				kind.AfterDelete(context.Background(), env, obj)
			}
		}
	}
}

// finishNothing is the store's finish function; conclude does its work after the write.
func finishNothing(context.Context, bool) {}

func transactionOf(ctx context.Context) *transaction {
	if t, ok := ctx.Value(transactionKey{}).(*transaction); ok {
		return t
	}
	return &transaction{}
}

func (s *strategy) invalid(obj runtime.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(s.kind.Hub.GroupKind(), metaOf(obj).GetName(), errorlimit.First(errs, 0))
}

// Create implements rest.Creater.
func (m *mainREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if m.kind.BeginCreate == nil {
		return m.Store.Create(ctx, obj, validate, options)
	}
	t := &transaction{}
	created, err := m.Store.Create(context.WithValue(ctx, transactionKey{}, t), obj, t.afterCreate(validate), options)
	t.conclude(err)
	return created, err
}

// Update implements rest.Updater.
func (m *mainREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	footprint.GrowStack() // the library writes in a goroutine of its own
	info = patcherror.Info(info)
	if m.kind.BeginCreate == nil && m.kind.BeginUpdate == nil {
		return m.Store.Update(ctx, name, info, create, update, forceAllowCreate, options)
	}
	t := &transaction{}
	obj, created, err := m.Store.Update(context.WithValue(ctx, transactionKey{}, t), name, info,
		t.afterCreate(create), t.afterUpdate(update), forceAllowCreate, options)
	t.conclude(err)
	return obj, created, err
}

// afterCreate and afterUpdate set writing when admission, the last check of an
// object, has passed.
func (t *transaction) afterCreate(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if validate != nil {
			if err := validate(ctx, obj); err != nil {
				return err
			}
		}
		t.writing = true
		return nil
	}
}

func (t *transaction) afterUpdate(validate rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if validate != nil {
			if err := validate(ctx, obj, old); err != nil {
				return err
			}
		}
		t.writing = true
		return nil
	}
}
