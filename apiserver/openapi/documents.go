// Package openapi serves the OpenAPI documents of the built-in kinds, and
// makes the type converters of server-side apply. Nothing is built before
// somebody asks for it: the definitions are most of what a server like this
// would otherwise allocate at its start.
package openapi

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

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
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Documents makes the documents of one server.
type Documents struct {
	// title and version are the documents' info.
	title, version string
	definitions    common.GetOpenAPIDefinitions
	namer          func() *openapi.DefinitionNamer
}

// New makes documents of the given definitions. scheme must know the external
// types alone: the internal ones would appear in x-kubernetes-group-version-kind.
// version names the release and the build: documents of the same version are
// the same.
func New(title, version string, definitions common.GetOpenAPIDefinitions, scheme func() *runtime.Scheme) *Documents {
	return &Documents{
		title: title, version: version, definitions: definitions,
		namer: sync.OnceValue(func() *openapi.DefinitionNamer { return openapi.NewDefinitionNamer(scheme()) }),
	}
}

// ConfigV2 is the configuration of the version 2 document.
func (d *Documents) ConfigV2() *common.Config {
	config := genericapiserver.DefaultOpenAPIConfig(d.definitions, d.namer())
	config.Info.Title, config.Info.Version = d.title, d.version
	return config
}

// ConfigV3 is the configuration of the version 3 documents.
func (d *Documents) ConfigV3() *common.OpenAPIV3Config {
	config := genericapiserver.DefaultOpenAPIV3Config(d.definitions, d.namer())
	config.Info.Title, config.Info.Version = d.title, d.version
	return config
}

// Install serves the documents of the container's web services: version 2 at
// /openapi/v2, version 3 at /openapi/v3 and below, one for each group version.
func (d *Documents) Install(container *restful.Container, to *mux.PathRecorderMux) {
	handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
		doc, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(container.RegisteredWebServices()), d.ConfigV2())
		if err != nil {
			return nil, "", err
		}
		doc.Definitions = handler.PruneDefaults(doc.Definitions)
		return doc, d.version, nil
	}))).RegisterOpenAPIVersionedService("/openapi/v2", to)

	v3 := &versions{docs: d, services: map[string]*restful.WebService{}, made: handler3.NewOpenAPIService()}
	for _, ws := range container.RegisteredWebServices() {
		gv := strings.TrimPrefix(ws.RootPath(), "/")
		v3.services[gv] = ws
		v3.made.UpdateGroupVersionLazy(gv, cached.Once(cached.Func(func() (*spec3.OpenAPI, string, error) { return v3.build(gv) })))
	}
	to.Handle("/openapi/v3", http.HandlerFunc(v3.serveIndex))
	to.HandlePrefix("/openapi/v3/", http.HandlerFunc(v3.serveDocument))
}

// versions serves the version 3 documents. Its index names each by the
// server's version rather than by a hash of its content, so that the index
// can be read without building them all.
type versions struct {
	docs     *Documents
	services map[string]*restful.WebService
	made     *handler3.OpenAPIService
}

func (v *versions) build(gv string) (*spec3.OpenAPI, string, error) {
	doc, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{v.services[gv]}), v.docs.ConfigV3())
	if err != nil {
		return nil, "", err
	}
	keepOwnKinds(doc, gv)
	return doc, v.docs.version, nil
}

func (v *versions) serveIndex(w http.ResponseWriter, _ *http.Request) {
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for gv := range v.services {
		index.Paths[gv] = handler3.OpenAPIV3DiscoveryGroupVersion{
			ServerRelativeURL: path.Join("/openapi/v3", gv) + "?hash=" + v.docs.version,
		}
	}
	w.Header().Set("Content-Type", "application/json")
	// The connection's failure is the client's to notice.
	_ = json.NewEncoder(w).Encode(index)
}

func (v *versions) serveDocument(w http.ResponseWriter, r *http.Request) {
	if v.services[strings.TrimPrefix(r.URL.Path, "/openapi/v3/")] == nil {
		http.NotFound(w, r)
		return
	}
	if query := r.URL.Query(); query.Get("hash") == v.docs.version {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
		r = r.Clone(r.Context())
		query.Del("hash")
		r.URL.RawQuery = query.Encode()
	}
	v.made.HandleGroupVersion(w, r)
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
