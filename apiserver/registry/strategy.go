package registry

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/errorlimit"
)

// strategy is a kind's behaviour on create, update and delete.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind  *resource.Kind
	env   *resource.Env
	shape shape
}

var (
	_ rest.RESTCreateStrategy              = &strategy{}
	_ rest.RESTUpdateStrategy              = &strategy{}
	_ rest.RESTDeleteStrategy              = &strategy{}
	_ rest.GarbageCollectionDeleteStrategy = &strategy{}
)

func newStrategy(kind *resource.Kind, scheme *runtime.Scheme, env *resource.Env) *strategy {
	return &strategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, kind: kind, env: env, shape: shapeOf(kind.New())}
}

func (s *strategy) NamespaceScoped() bool                    { return s.kind.Namespaced }
func (s *strategy) AllowCreateOnUpdate(context.Context) bool { return s.kind.CreateOnUpdate }
func (s *strategy) Canonicalize(runtime.Object)              {}

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (s *strategy) AllowUnconditionalUpdate(ctx context.Context) bool {
	if !s.kind.RequireVersion {
		return true
	}
	v := s.clientVersion(ctx)
	return v != nil && v.Unconditional
}

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s *strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	if s.kind.Status && !s.kind.StatusOnCreate {
		s.shape.keepStatus(obj, nil)
	}
	if s.kind.Generation {
		metaOf(obj).SetGeneration(1)
	}
	s.kind.PrepareCreate(ctx, s.env, obj)
}

// Validate implements rest.RESTCreateStrategy.
func (s *strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(metaOf(obj), s.kind.Namespaced, s.kind.NameRule, metadataPath)
	errs = append(errs, s.validateFinalizers(obj)...)
	return errorlimit.First(append(errs, s.validateObject(ctx, obj, nil)...), 0)
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (s *strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return s.kind.Warn(obj, nil)
}

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s *strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	if s.kind.Status {
		s.shape.keepStatus(obj, old)
	}
	s.kind.PrepareUpdate(ctx, s.env, obj, old)
	s.updateGeneration(obj, old)
}

// updateGeneration increments the generation if anything but metadata and status
// changed.
func (s *strategy) updateGeneration(obj, old runtime.Object) {
	if s.kind.Generation && !s.shape.sameOthers(obj, old) {
		metaOf(obj).SetGeneration(metaOf(old).GetGeneration() + 1)
	}
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s *strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.validateMeta(obj, old)
	if prefix := metaOf(obj).GetGenerateName(); prefix != "" {
		errs = append(errs, resource.Invalid(metadataPath.Child("generateName"), prefix, s.kind.NameRule(prefix, true))...)
	}
	return errorlimit.First(append(errs, s.validateObject(ctx, obj, old)...), 0)
}

var metadataPath = field.NewPath("metadata")

// validateMeta validates the metadata of an update.
func (s *strategy) validateMeta(obj, old runtime.Object) field.ErrorList {
	return append(apivalidation.ValidateObjectMetaAccessorUpdate(metaOf(obj), metaOf(old), metadataPath), s.validateFinalizers(obj)...)
}

func (s *strategy) validateFinalizers(obj runtime.Object) field.ErrorList {
	if s.kind.AnyFinalizer {
		return nil
	}
	var errs field.ErrorList
	for i, name := range metaOf(obj).GetFinalizers() {
		errs = append(errs, resource.FinalizerName(metadataPath.Child("finalizers").Index(i), name)...)
	}
	return errs
}

// validateObject validates an object except for its metadata, by the rules of the
// version in which the client writes. On create old is nil.
func (s *strategy) validateObject(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if v := s.clientVersion(ctx); v != nil && v.Validate != nil {
		return v.Validate(obj, old)
	}
	errs := append(s.kind.Validate(obj), s.kind.Restrict(s.env, obj)...)
	if old == nil {
		return append(errs, s.kind.ValidateCreate(obj)...)
	}
	return append(errs, s.kind.ValidateUpdate(obj, old)...)
}

// clientVersion returns the version in which the client writes, or nil if it is the hub.
func (s *strategy) clientVersion(ctx context.Context) *resource.Version {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok {
		return nil
	}
	for i := range s.kind.Versions {
		if gvk := s.kind.Versions[i].GVK; gvk.Group == info.APIGroup && gvk.Version == info.APIVersion {
			return &s.kind.Versions[i]
		}
	}
	return nil
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (s *strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return s.kind.Warn(obj, old)
}

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy.
func (s *strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	if s.kind.OrphanByDefault {
		return rest.OrphanDependents
	}
	return rest.DeleteDependents
}

// prepareStatus makes an update of the status change nothing but the status and, unless the
// kind is StatusOnly, metadata.
func (s *strategy) prepareStatus(env *resource.Env, obj, old runtime.Object) {
	s.shape.keepOthers(obj, old)
	if s.kind.StatusOnly {
		metav1.ResetObjectMetaForStatus(obj.(metav1.Object), old.(metav1.Object))
	}
	s.kind.PrepareStatus(env, obj, old)
}

// statusResets returns the paths that an update of the status ignores.
func (s *strategy) statusResets() []string {
	resets := slices.Concat(s.shape.exceptStatus(), s.kind.StatusResets)
	if s.kind.StatusOnly {
		resets = append(resets, "metadata")
	}
	return resets
}

// gracefulStrategy is the strategy of a kind whose objects are deleted gracefully.
type gracefulStrategy struct{ *strategy }

var _ rest.RESTGracefulDeleteStrategy = gracefulStrategy{}

// CheckGracefulDelete implements rest.RESTGracefulDeleteStrategy.
func (s gracefulStrategy) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	period := s.kind.GracePeriod(obj, options.GracePeriodSeconds)
	options.GracePeriodSeconds = &period
	return true
}

// viewStrategy is the strategy of an update through a subresource.
type viewStrategy struct {
	*strategy
	view resource.KindView
}

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (s viewStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (s viewStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	s.view.Prepare(s.env, obj, old)
	s.updateGeneration(obj, old)
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s viewStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	validate := s.view.Validate
	if v := s.clientVersion(ctx); v != nil && v.ValidateView != nil {
		validate = func(obj, old runtime.Object) field.ErrorList { return v.ValidateView(s.view.Name, obj, old) }
	}
	errs := append(s.validateMeta(obj, old), validate(obj, old)...)
	return errorlimit.First(append(errs, s.view.Restrict(s.env, obj, old)...), 0)
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (viewStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// serverStrategy is the strategy of the server's own updates. They may change
// any field. They keep the generation, which counts what clients ask for.
type serverStrategy struct{ *strategy }

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (s serverStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// PrepareForUpdate implements rest.RESTUpdateStrategy.
func (serverStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	metaOf(obj).SetGeneration(metaOf(old).GetGeneration())
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s serverStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return errorlimit.First(s.validateMeta(obj, old), 0)
}

// metaOf returns an object's metadata. The type parameter of a kind's
// declaration requires metadata, so the error cannot occur.
func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m
}
