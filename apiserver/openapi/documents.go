// Package openapi owns the OpenAPI documents of the built-in kinds and the type
// converters of server-side apply.
//
// Each is built when a client first asks for it: the definitions would otherwise be
// most of the memory that the server allocates at its start.
package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"

	definitions "svc.dev/svc/apis/openapi"
)

// Definitions returns the definitions of the named models and of all that they
// refer to; without names, of all models.
type Definitions func(models ...string) common.GetOpenAPIDefinitions

// All returns Definitions that ignore the names of models.
func All(definitions common.GetOpenAPIDefinitions) Definitions {
	return func(...string) common.GetOpenAPIDefinitions { return definitions }
}

// Documents are the OpenAPI documents of one server.
type Documents struct {
	// title and version are the documents' info.
	title, version string
	definitions    Definitions
	namer          func() *openapi.DefinitionNamer
	clock          clock.PassiveClock
}

// New returns the documents of the definitions. scheme must have only the external
// types: internal ones would appear in x-kubernetes-group-version-kind. version is
// that of the release and the build; documents of equal versions must be equal.
func New(title, version string, definitions Definitions, scheme func() *runtime.Scheme, clock clock.PassiveClock) *Documents {
	return &Documents{
		title: title, version: version, definitions: definitions, clock: clock,
		namer: sync.OnceValue(func() *openapi.DefinitionNamer { return openapi.NewDefinitionNamer(scheme()) }),
	}
}

// ConfigV2 returns the configuration of the version 2 document.
func (d *Documents) ConfigV2() *common.Config {
	config := genericapiserver.DefaultOpenAPIConfig(d.definitions(), d.namer())
	config.Info.Title, config.Info.Version = d.title, d.version
	return config
}

// ConfigV3 returns the configuration of the version 3 documents of the named models;
// without names, of all models.
func (d *Documents) ConfigV3(models ...string) *common.OpenAPIV3Config {
	config := genericapiserver.DefaultOpenAPIV3Config(d.definitions(models...), d.namer())
	config.Info.Title, config.Info.Version = d.title, d.version
	return config
}

// Routes are those of a container's web services, which may have none before they are
// needed.
type Routes interface {
	// Whole returns a web service of the container with all of its routes.
	Whole(*restful.WebService) (*restful.WebService, error)
	// Summary returns what the routes of a web service are made of, and the names of the
	// models of their bodies, without making them. Web services of one path with equal
	// summaries have equal documents, if their models are equal.
	Summary(*restful.WebService) (routes []string, models []string, err error)
}

// Install serves the documents of the container's web services: version 2 at
// /openapi/v2, version 3 at /openapi/v3 and below, one for each group version.
func (d *Documents) Install(container *restful.Container, routes Routes, to *mux.PathRecorderMux) {
	handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
		doc, err := d.buildV2(container, routes)
		return doc, d.version, err
	}))).RegisterOpenAPIVersionedService("/openapi/v2", to)
	d.installV3(container, routes, to, nil)
}

// Made are the Routes of a container that has its web services with all of them.
var Made Routes = made{}

type made struct{}

// Whole implements Routes.
func (made) Whole(ws *restful.WebService) (*restful.WebService, error) { return ws, nil }

// Summary implements Routes.
func (made) Summary(ws *restful.WebService) (routes, names []string, err error) {
	for _, route := range ws.Routes() {
		routes = append(routes, strings.Join([]string{route.Method, route.Path, route.Operation, route.Doc}, " "))
	}
	return routes, models(ws), nil
}

// buildV2 returns the version 2 document of the container's web services.
func (d *Documents) buildV2(container *restful.Container, routes Routes) (*spec.Swagger, error) {
	var services []*restful.WebService
	for _, ws := range container.RegisteredWebServices() {
		ws, err := routes.Whole(ws)
		if err != nil {
			return nil, err
		}
		services = append(services, ws)
	}
	doc, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(services), d.ConfigV2())
	if err != nil {
		return nil, err
	}
	doc.Definitions = handler.PruneDefaults(doc.Definitions)
	return doc, nil
}

// installV3 serves the version 3 documents of the container's web services, and those
// of custom resources, if custom is not nil.
func (d *Documents) installV3(container *restful.Container, routes Routes, to serveMux, custom *custom) {
	v3 := &versions{docs: d, services: map[string]service{}, made: handler3.NewOpenAPIService(), custom: custom}
	for _, ws := range container.RegisteredWebServices() {
		gv := strings.TrimPrefix(ws.RootPath(), "/")
		if gv == versionPath {
			continue
		}
		v3.services[gv] = service{
			made: func() (*restful.WebService, error) { return routes.Whole(ws) },
			hash: sync.OnceValues(func() (string, error) {
				summary, models, err := routes.Summary(ws)
				return d.hash(gv, summary, models), err
			}),
		}
		v3.made.UpdateGroupVersionLazy(gv, cached.Once(cached.Func(func() (*spec3.OpenAPI, string, error) { return v3.build(gv) })))
	}
	to.Handle("/openapi/v3", http.HandlerFunc(v3.serveIndex))
	to.HandlePrefix("/openapi/v3/", http.HandlerFunc(v3.serveDocument))
}

// versionPath is the document of /version. Every server of the chain has it, and
// the aggregator asks any one: it is left to the servers of the libraries, which
// have the same hash for it.
const versionPath = "version"

// hash returns a hash of what the document of a group version's routes is made of.
func (d *Documents) hash(gv string, routes, models []string) string {
	sum := sha256.New()
	fmt.Fprintln(sum, d.title, d.version, libraries(), gv, definitions.Digest(models...))
	for _, route := range routes {
		fmt.Fprintln(sum, route)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// libraries returns the versions of the modules that make the documents.
var libraries = sync.OnceValue(func() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var versions []string
	for _, module := range build.Deps {
		if slices.Contains([]string{"k8s.io/apiserver", "k8s.io/kube-openapi"}, module.Path) {
			versions = append(versions, module.Version)
		}
	}
	return strings.Join(versions, " ")
})

// service is a web service with all of its routes, and the hash of its document. Both are
// made when they are asked for; only the hash is kept.
type service struct {
	made func() (*restful.WebService, error)
	hash func() (string, error)
}

// versions serves the version 3 documents. Its index has for each a hash of what
// it is made of rather than of its text, so that the index can be read without
// building the documents.
type versions struct {
	docs     *Documents
	services map[string]service
	made     *handler3.OpenAPIService
	custom   *custom // nil if there are none
}

func (v *versions) build(gv string) (*spec3.OpenAPI, string, error) {
	ws, err := v.services[gv].made()
	if err != nil {
		return nil, "", err
	}
	doc, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{ws}), v.docs.ConfigV3(models(ws)...))
	if err != nil {
		return nil, "", err
	}
	keepOwnKinds(doc, gv)
	hash, err := v.services[gv].hash()
	return doc, hash, err
}

// models returns the names of the types in the bodies of the service's routes.
func models(ws *restful.WebService) []string {
	seen := map[string]bool{}
	add := func(sample any) {
		if sample != nil {
			seen[util.GetCanonicalTypeName(sample)] = true
		}
	}
	for _, route := range ws.Routes() {
		add(route.ReadSample)
		add(route.WriteSample)
		for _, response := range route.ResponseErrors {
			add(response.Model)
		}
	}
	return slices.Collect(maps.Keys(seen))
}

func (v *versions) serveIndex(w http.ResponseWriter, _ *http.Request) {
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for gv, service := range v.services {
		hash, err := service.hash()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		index.Paths[gv] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentURL(gv, hash)}
	}
	if v.custom != nil {
		versions, err := v.custom.versions()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		v.custom.dropOthers(versions)
		for gv, version := range versions {
			index.Paths[gv] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: documentURL(gv, version.hash)}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has closed the connection.
	_ = json.NewEncoder(w).Encode(index)
}

// documentURL returns where a document is.
func documentURL(gv, hash string) string {
	return path.Join("/openapi/v3", gv) + "?hash=" + hash
}

func (v *versions) serveDocument(w http.ResponseWriter, r *http.Request) {
	gv := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	current, serve, err := v.document(gv)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if serve == nil {
		http.NotFound(w, r)
		return
	}
	query := r.URL.Query()
	switch query.Get("hash") {
	case "":
	case current:
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", v.docs.clock.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
		r = r.Clone(r.Context())
		query.Del("hash")
		r.URL.RawQuery = query.Encode()
	default:
		http.Redirect(w, r, documentURL(gv, current), http.StatusMovedPermanently)
		return
	}
	serve(w, r)
}

// document returns the hash of a document, and what serves it: nil if there is none.
func (v *versions) document(gv string) (string, http.HandlerFunc, error) {
	if own, ok := v.services[gv]; ok {
		hash, err := own.hash()
		return hash, v.made.HandleGroupVersion, err
	}
	version, err := v.customVersion(gv)
	if err != nil || version == nil {
		return "", nil, err
	}
	return version.hash, func(w http.ResponseWriter, r *http.Request) { v.custom.serveV3(w, r, gv, version) }, nil
}

// customVersion returns a group version of custom resources, or nil if it is not
// served.
func (v *versions) customVersion(gv string) (*customVersion, error) {
	if v.custom == nil {
		return nil, nil
	}
	versions, err := v.custom.versions()
	return versions[gv], err
}

const gvkExtension = "x-kubernetes-group-version-kind"

// keepOwnKinds drops from the meta types that every group registers
// (DeleteOptions, WatchEvent) the kinds of other groups.
func keepOwnKinds(doc *spec3.OpenAPI, gv string) {
	parts := strings.Split(gv, "/")
	if doc.Components == nil || len(parts) < 2 {
		return
	}
	group, version := "", parts[len(parts)-1]
	if len(parts) == 3 {
		group = parts[1]
	}
	for _, schema := range doc.Components.Schemas {
		gvks, ok := schema.Extensions[gvkExtension].([]any)
		if !ok || len(gvks) < 2 {
			continue
		}
		var own []any
		for _, gvk := range gvks {
			m, ok := gvk.(map[string]any)
			if !ok || m["group"] == group && m["version"] == version || m["group"] == "" && m["version"] == "v1" {
				own = append(own, gvk)
			}
		}
		if len(own) == 0 {
			continue
		}
		extensions := spec.Extensions{}
		for k, value := range schema.Extensions {
			extensions[k] = value
		}
		extensions[gvkExtension] = own
		schema.Extensions = extensions
	}
}
