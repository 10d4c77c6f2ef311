package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"svc.dev/svc/apiserver/openapi"
)

// Routes are what a view has installed on a container. They select the route of a
// request, which needs the request info. The routes of a resource, and those of each of
// its subresources, are made with the first request for it: most are never used, and
// the parameters, the documentation and the regular expression of each take memory.
type Routes struct {
	// Groups are those that the view serves.
	Groups []Group

	library restful.CurlyRouter
	// versions have the path of their web service as key.
	versions map[string]*version
	// paths are the routes of resources (pods) and subresources (pods/status).
	paths map[schema.GroupVersionResource]service
}

var _ restful.RouteSelector = &Routes{}

// service makes a web service, or returns the one that was made.
type service func() (*restful.WebService, error)

// SelectRoute implements restful.RouteSelector.
func (r *Routes) SelectRoute(services []*restful.WebService, req *http.Request) (*restful.WebService, *restful.Route, error) {
	made, err := r.service(req)
	if err != nil {
		return nil, nil, restful.NewError(http.StatusInternalServerError, err.Error())
	}
	if made != nil {
		services = []*restful.WebService{made}
	}
	return r.library.SelectRoute(services, req)
}

// service returns the web service that has the routes of a request for a resource of the
// view, and nil for other requests.
func (r *Routes) service(req *http.Request) (*restful.WebService, error) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		return nil, nil
	}
	key := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if info.Subresource != "" {
		key.Resource += "/" + info.Subresource
	}
	made, ok := r.paths[key]
	if !ok {
		return nil, nil
	}
	return made()
}

// all makes the routes of all resources.
func (r *Routes) all() error {
	for path, service := range r.paths {
		if _, err := service(); err != nil {
			return fmt.Errorf("routes of %s: %w", path, err)
		}
	}
	return nil
}

var _ openapi.Routes = &Routes{}

// Whole implements openapi.Routes. The web service is made with each call. Services that
// the view has not installed are returned as they are.
func (r *Routes) Whole(service *restful.WebService) (*restful.WebService, error) {
	version, ok := r.versions[service.RootPath()]
	if !ok {
		return service, nil
	}
	return version.install(version.Storage)
}

// Summary implements openapi.Routes: what discovery says of the version's resources, and
// their models, determine the routes that the library makes.
func (r *Routes) Summary(service *restful.WebService) (resources, models []string, err error) {
	version, ok := r.versions[service.RootPath()]
	if !ok {
		return openapi.Made.Summary(service)
	}
	for _, resource := range version.resources {
		line, err := json.Marshal(resource)
		if err != nil {
			return nil, nil, err
		}
		resources = append(resources, string(line))
	}
	models, err = version.models()
	return resources, models, err
}

// version is a version whose routes are made when they are needed.
type version struct {
	genericapi.APIGroupVersion
	// resources are what discovery says, and models the names of their OpenAPI models.
	resources []metav1.APIResource
	models    func() ([]string, error)
	converter func() (managedfields.TypeConverter, error)
}

// add adds the web service of a version to the container and returns what discovery
// says of it.
func (r *Routes) add(container *restful.Container, library genericapi.APIGroupVersion, models func() ([]string, error),
	converter func(models ...string) managedfields.TypeConverter,
) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	v := &version{APIGroupVersion: library, models: models, converter: sync.OnceValues(func() (managedfields.TypeConverter, error) {
		names, err := models()
		if err != nil {
			return nil, err
		}
		return converter(names...), nil
	})}
	v.EquivalentResourceRegistry = registered{library.EquivalentResourceRegistry}
	for _, p := range slices.Sorted(maps.Keys(v.Storage)) {
		resource, kind, err := v.describe(p)
		if err != nil {
			return nil, err
		}
		v.resources = append(v.resources, resource)
		name, subresource, _ := strings.Cut(p, "/")
		library.EquivalentResourceRegistry.RegisterKindFor(v.GroupVersion.WithResource(name), subresource, kind)
		r.paths[v.GroupVersion.WithResource(p)] = sync.OnceValues(func() (*restful.WebService, error) {
			ws, err := v.install(v.only(p))
			if err != nil {
				return nil, err
			}
			dropDocumentation(ws)
			return ws, nil
		})
	}
	ws := v.discovery()
	r.versions[ws.RootPath()] = v
	container.Add(ws)
	return genericapi.ConvertGroupVersionIntoToDiscovery(v.resources)
}

// discovery returns the web service of the version as the library makes it, with the
// route of discovery only.
func (v *version) discovery() *restful.WebService {
	prefix := path.Join(v.Root, v.GroupVersion.Group, v.GroupVersion.Version)
	media, streams := negotiation.MediaTypesForSerializer(v.Serializer)
	ws := (&restful.WebService{}).Path(prefix).Doc("API at " + prefix).ApiVersion(v.GroupVersion.String()).
		Consumes("*/*").Produces(slices.Concat(media, streams)...)
	list := discovery.APIResourceListerFunc(func() []metav1.APIResource { return v.resources })
	discovery.NewAPIVersionHandler(v.Serializer, v.GroupVersion, list).AddToWebService(ws)
	return ws
}

// install returns the web service of the storage.
func (v *version) install(storage map[string]rest.Storage) (*restful.WebService, error) {
	converter, err := v.converter()
	if err != nil {
		return nil, err
	}
	library := v.APIGroupVersion
	library.Storage, library.TypeConverter = storage, converter
	container := restful.NewContainer()
	if _, _, err := library.InstallREST(container); err != nil {
		return nil, err
	}
	return container.RegisteredWebServices()[0], nil
}

// dropDocumentation drops from routes what is only for documents, which are made from
// Routes.Whole: it is about half of their memory.
func dropDocumentation(ws *restful.WebService) {
	routes := ws.Routes() // not a copy: the library's services are not dynamic
	for i := range routes {
		route := &routes[i]
		route.ParameterDocs, route.ResponseErrors, route.DefaultResponse = nil, nil, nil
		route.ReadSample, route.WriteSample, route.WriteSamples, route.Metadata = nil, nil, nil, nil
	}
}

// only returns the storage of one path. The library asks the resource of a subresource
// for its kind and scope.
func (v *version) only(p string) map[string]rest.Storage {
	storage := map[string]rest.Storage{p: v.Storage[p]}
	if name, _, sub := strings.Cut(p, "/"); sub {
		storage[name] = parent{Storage: v.Storage[name], names: v.Storage[name].(names)}
	}
	return storage
}

// names are what the library demands of the storage of every resource.
type names interface {
	rest.Scoper
	rest.SingularNameProvider
}

// parent is the storage of a resource without its operations.
type parent struct {
	rest.Storage
	names
}

// registered is a registry in which all kinds of the view are registered already. The
// library registers a kind with its routes, which would be a second time.
type registered struct {
	runtime.EquivalentResourceRegistry
}

// RegisterKindFor implements runtime.EquivalentResourceRegistry.
func (registered) RegisterKindFor(schema.GroupVersionResource, string, schema.GroupVersionKind) {}
