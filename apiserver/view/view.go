// Package view owns the HTTP routes of kinds: a view installs versions of the kinds
// on a container of web services. Several views may serve the same storage.
package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/util"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/itemcache"
	"svc.dev/svc/apiserver/jsonencoding"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/footprint"
)

// View is what to install, and how requests are handled.
type View struct {
	Scheme *runtime.Scheme
	// Versions returns the versions of a kind that the view serves.
	Versions func(*resource.Kind) []schema.GroupVersionKind
	// Order returns the versions of a group, the preferred one first; nil is the order
	// of their stability.
	Order func(versions []schema.GroupVersion) []schema.GroupVersion
	// Subresource reports whether the view serves a path of a version, such as pods/resize; nil is
	// all.
	Subresource func(gvk schema.GroupVersionKind, path string) bool
	// Body reports whether the view takes a version of the body of an action, such as
	// policy/v1beta1 of pods/eviction; nil is all.
	Body func(gvk schema.GroupVersionKind) bool
	// Converter returns the type converter of the named OpenAPI models.
	Converter func(models ...string) managedfields.TypeConverter
	// Fields are those that clients of the view cannot set; nil for none.
	Fields *fields.Fields
	// Admission may be nil.
	Admission           admission.Interface
	Authorizer          authorizer.UnconditionalAuthorizer
	Equivalents         runtime.EquivalentResourceRegistry
	MinRequestTimeout   time.Duration
	MaxRequestBodyBytes int64
	// FastJSON encodes and decodes JSON with package jsonencoding rather than
	// with the library.
	FastJSON bool
	// AllRoutes makes all routes at once rather than those of a resource with the first
	// request for it.
	AllRoutes bool
	// Items has the encoded items of lists; nil for none. It is not used without
	// FastJSON.
	Items *itemcache.Cache
}

// Version is a group version that a view has installed.
type Version struct {
	schema.GroupVersion
	Resources []apidiscoveryv2.APIResourceDiscovery
}

// Group is a group of versions, the preferred one first.
type Group struct {
	Name     string
	Versions []Version
}

// Install adds the web services of the kinds to the container and makes the routes its
// router. The web services have discovery only: the routes are made when they are first
// needed, unless AllRoutes is set.
func (v View) Install(container *restful.Container, kinds *registry.Registry) (*Routes, error) {
	storage, codecs := v.storage(kinds), bodycheck.Codecs(v.Fields.Codecs(v.codecs()))
	made := &Routes{versions: map[string]*version{}, paths: map[schema.GroupVersionResource]service{}}
	for _, name := range v.groups(kinds) {
		group := Group{Name: name}
		versions := v.Scheme.PrioritizedVersionsForGroup(name)
		if v.Order != nil {
			versions = v.Order(versions)
		}
		for _, gv := range versions {
			if len(storage[gv]) == 0 {
				continue
			}
			models := func() ([]string, error) { return v.models(gv, kinds) }
			resources, err := made.add(container, v.version(gv, storage[gv], codecs), models, v.Converter)
			if err != nil {
				return nil, fmt.Errorf("group version %s: %w", gv, err)
			}
			group.Versions = append(group.Versions, Version{GroupVersion: gv, Resources: resources})
		}
		made.Groups = append(made.Groups, group)
	}
	if v.AllRoutes {
		if err := made.all(); err != nil {
			return nil, err
		}
	}
	container.Router(made)
	return made, nil
}

// codecs returns the serializers of requests and responses.
func (v View) codecs() runtime.NegotiatedSerializer {
	library := serializer.NewCodecFactory(v.Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	if !v.FastJSON {
		return library
	}
	return jsonencoding.New(v.Scheme, library, v.Items)
}

// storage returns the storage of the kinds by the versions that serve it.
func (v View) storage(kinds *registry.Registry) map[schema.GroupVersion]map[string]rest.Storage {
	storage := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, res := range kinds.Resources {
		for _, gvk := range v.Versions(res.Kind) {
			gv := gvk.GroupVersion()
			if storage[gv] == nil {
				storage[gv] = map[string]rest.Storage{}
			}
			for path, s := range res.Storage {
				if v.Subresource != nil && path != res.Kind.Name && !v.Subresource(gvk, path) {
					continue
				}
				if v.Body != nil {
					s = registry.WithBodies(s, v.Body)
				}
				if s != nil {
					storage[gv][path] = s
				}
			}
		}
	}
	return storage
}

// groups returns the groups that the view serves, in the order of the kinds.
func (v View) groups(kinds *registry.Registry) []string {
	var groups []string
	for _, res := range kinds.Resources {
		for _, gvk := range v.Versions(res.Kind) {
			if !slices.Contains(groups, gvk.Group) {
				groups = append(groups, gvk.Group)
			}
		}
	}
	return groups
}

// version returns what the library installs for a version. It lacks a type converter.
func (v View) version(gv schema.GroupVersion, storage map[string]rest.Storage, codecs runtime.NegotiatedSerializer) genericapi.APIGroupVersion {
	root := "/apis"
	if gv.Group == "" {
		root = "/api"
	}
	return genericapi.APIGroupVersion{
		Storage:                    storage,
		Root:                       root,
		GroupVersion:               gv,
		OptionsExternalVersion:     &schema.GroupVersion{Version: "v1"},
		ParameterCodec:             runtime.NewParameterCodec(v.Scheme),
		Serializer:                 codecs,
		Creater:                    creater{v.Scheme},
		Convertor:                  v.Scheme,
		UnsafeConvertor:            convertor{runtime.UnsafeObjectConvertor(v.Scheme)},
		Defaulter:                  v.Scheme,
		Typer:                      v.Scheme,
		Namer:                      runtime.Namer(meta.NewAccessor()),
		EquivalentResourceRegistry: v.Equivalents,
		Admit:                      v.Admission,
		Authorizer:                 v.Authorizer,
		MinRequestTimeout:          v.MinRequestTimeout,
		MaxRequestBodyBytes:        v.MaxRequestBodyBytes,
	}
}

// convertor converts objects for the field manager, without defaults. To find the
// fields that a manager does not apply any more, the field manager converts untyped
// objects between versions; a default would look like an applied field.
type convertor struct{ runtime.ObjectConvertor }

// ConvertToVersion implements runtime.ObjectConvertor.
func (c convertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, untyped := in.(runtime.Unstructured); untyped {
		target = resource.WithoutDefaults{GroupVersioner: target}
	}
	return c.ObjectConvertor.ConvertToVersion(in, target)
}

// creater makes objects. It is the first call of the library's create handler in
// its own goroutine, so it grows the stack of that goroutine.
type creater struct{ *runtime.Scheme }

// New implements runtime.ObjectCreater.
func (c creater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	footprint.GrowStack()
	return c.Scheme.New(kind)
}

// models returns the OpenAPI names of the types of the version's kinds, in all
// versions of these kinds: the field manager converts an object to every version
// by which a manager has written it, in an earlier release, too, and drops managers
// whose version has no type.
func (v View) models(gv schema.GroupVersion, kinds *registry.Registry) ([]string, error) {
	var models []string
	for _, res := range kinds.Resources {
		versions := v.Versions(res.Kind)
		if !slices.ContainsFunc(versions, func(gvk schema.GroupVersionKind) bool { return gvk.GroupVersion() == gv }) {
			continue
		}
		for _, gvk := range res.Kind.GVKs() {
			for path, s := range res.Storage {
				model, err := v.model(gvk.GroupVersion(), s)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
				models = append(models, model)
			}
		}
	}
	slices.Sort(models)
	return slices.Compact(models), nil
}

// model returns the OpenAPI name of the storage's type in the version.
func (v View) model(gv schema.GroupVersion, s rest.Storage) (string, error) {
	kind, err := genericapi.GetResourceKind(gv, s, v.Scheme)
	if err != nil {
		return "", err
	}
	sample, err := v.Scheme.New(kind)
	if err != nil {
		return "", err
	}
	return util.GetCanonicalTypeName(sample), nil
}

// APIGroup returns the group as discovery serves it.
func (g Group) APIGroup() metav1.APIGroup {
	group := metav1.APIGroup{Name: g.Name}
	for _, version := range g.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
