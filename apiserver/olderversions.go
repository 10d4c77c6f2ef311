package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/responsewriter"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiservicestorage "k8s.io/kube-aggregator/pkg/registry/apiservice/etcd"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"

	"svc.dev/svc/apiserver/view"
)

// The kinds of the libraries' servers, which install v1 only, in the version that
// releases before 1.22 serve, too (document 2, section 9).
var (
	olderDefinitions = schema.GroupVersionKind{Group: apiextensions.GroupName, Version: "v1beta1", Kind: "CustomResourceDefinition"}
	olderAPIServices = schema.GroupVersionKind{Group: apiregistrationv1beta1.GroupName, Version: "v1beta1", Kind: "APIService"}
)

// servesOlder reports whether the release serves one of these versions.
func (c *chain) servesOlder(gvk schema.GroupVersionKind) bool {
	return c.stores.served.Serves(gvk, "")
}

// addOlderDefinitions serves definitions in v1beta1.
func (c *chain) addOlderDefinitions(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer, own library) error {
	if !c.servesOlder(olderDefinitions) {
		return nil
	}
	main, err := customresourcedefinition.NewREST(own.scheme, config.RESTOptionsGetter)
	if err != nil {
		return err
	}
	main.CreateStrategy = definitionStrategy{main.CreateStrategy}
	server.RegisterDestroyFunc(main.Destroy)
	const resource = "customresourcedefinitions"
	return c.addOlder(config, server, own, olderDefinitions, map[string]rest.Storage{
		resource: main, resource + "/status": customresourcedefinition.NewStatusREST(own.scheme, main),
	})
}

// addOlderAPIServices serves APIServices in v1beta1.
func (c *chain) addOlderAPIServices(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer, own library) error {
	if !c.servesOlder(olderAPIServices) {
		return nil
	}
	main := apiservicestorage.NewREST(own.scheme, config.RESTOptionsGetter)
	server.RegisterDestroyFunc(main.Destroy)
	const resource = "apiservices"
	return c.addOlder(config, server, own, olderAPIServices, map[string]rest.Storage{
		resource: main, resource + "/status": apiservicestorage.NewStatusREST(own.scheme, main),
	})
}

// withOlderAPIServices adds the older version of APIServices, if the release serves it, to the
// lists of groups, in which the library names v1 only. These releases have no aggregated
// discovery.
func (c *chain) withOlderAPIServices(next http.Handler) http.Handler {
	if !c.servesOlder(olderAPIServices) {
		return next
	}
	add := func(group *metav1.APIGroup) {
		if gv := olderAPIServices.GroupVersion(); group.Name == gv.Group {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := strings.TrimSuffix(req.URL.Path, "/")
		if path != genericapiserver.APIGroupPrefix && path != genericapiserver.APIGroupPrefix+"/"+olderAPIServices.Group {
			next.ServeHTTP(w, req)
			return
		}
		asked := req.Clone(req.Context())
		asked.Header.Set("Accept", runtime.ContentTypeJSON)
		answer := responsewriter.NewInMemoryResponseWriter()
		next.ServeHTTP(answer, asked)
		if answer.RespCode() != http.StatusOK {
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.RespCode())
			_, _ = w.Write(answer.Data()) // an error means that the client has gone
			return
		}
		var made runtime.Object = &metav1.APIGroupList{}
		if path != genericapiserver.APIGroupPrefix {
			made = &metav1.APIGroup{}
		}
		if err := json.Unmarshal(answer.Data(), made); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		switch document := made.(type) {
		case *metav1.APIGroupList:
			for i := range document.Groups {
				add(&document.Groups[i])
			}
		case *metav1.APIGroup:
			add(document)
		}
		responsewriters.WriteObjectNegotiated(aggregatorscheme.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, req, http.StatusOK, made, false)
	})
}

// withOlder returns the library with the model of the kind in the older version, if the
// release serves it, as a dependency of that in the version of the library. The library
// makes the type converter of its routes from the models of its own version, and a field
// manager drops managers whose version has no type.
func (c *chain) withOlder(own library, gvk schema.GroupVersionKind) (library, error) {
	if !c.servesOlder(gvk) {
		return own, nil
	}
	older, err := own.model(gvk)
	if err != nil {
		return own, err
	}
	current, err := own.model(own.version.WithKind(gvk.Kind))
	if err != nil {
		return own, err
	}
	all := own.definitions
	own.definitions = func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		made := all(ref)
		definition := made[current]
		definition.Dependencies = append(slices.Clip(definition.Dependencies), older)
		made[current] = definition
		return made
	}
	return own, nil
}

// model returns the OpenAPI name of a type of the library.
func (l library) model(gvk schema.GroupVersionKind) (string, error) {
	sample, err := l.scheme.New(gvk)
	if err != nil {
		return "", err
	}
	return util.GetCanonicalTypeName(sample), nil
}

// addOlder serves a kind of the library, which is withOlder, in the older version.
func (c *chain) addOlder(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer, own library,
	gvk schema.GroupVersionKind, storage map[string]rest.Storage,
) error {
	current, err := own.model(own.version.WithKind(gvk.Kind))
	if err != nil {
		return err
	}
	version, err := view.View{
		Scheme:              own.scheme,
		Admission:           config.AdmissionControl,
		Authorizer:          config.Authorization.Authorizer,
		Equivalents:         server.EquivalentResourceRegistry,
		MinRequestTimeout:   time.Duration(config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
	}.InstallVersion(server.Handler.GoRestfulContainer, gvk.GroupVersion(), storage, own.codecs, c.typesOf(own).TypeConverter(current))
	if err != nil {
		return err
	}
	server.AggregatedDiscoveryGroupManager.AddGroupVersion(gvk.Group, apidiscoveryv2.APIVersionDiscovery{
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: gvk.Version, Resources: version.Resources,
	})
	return nil
}

// definitionStrategy is the strategy of new definitions without the rules that v1beta1
// did not have: schemas are optional and need not be structural, and unknown fields may
// be preserved.
type definitionStrategy struct{ rest.RESTCreateStrategy }

// Validate implements rest.RESTCreateStrategy. The rules of an update hold as far as the
// old object satisfies them; here that is the object itself.
func (definitionStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	definition := obj.(*apiextensions.CustomResourceDefinition)
	named := func(name string, prefix bool) []string {
		faults := apivalidation.NameIsDNSSubdomain(name, prefix)
		if want := definition.Spec.Names.Plural + "." + definition.Spec.Group; name != want {
			faults = append(faults, fmt.Sprintf("must be %s: spec.names.plural and spec.group", want))
		}
		return faults
	}
	errs := apivalidation.ValidateObjectMeta(&definition.ObjectMeta, false, named, field.NewPath("metadata"))
	stored := definition.DeepCopy()
	stored.ResourceVersion = "1" // an update has one
	return append(errs, validation.ValidateCustomResourceDefinitionUpdate(ctx, stored, stored.DeepCopy())...)
}
