package view

import (
	"fmt"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
)

// InstallVersion adds the web service of a version whose storage is not that of kinds,
// by its paths, to the container.
func (v View) InstallVersion(container *restful.Container, gv schema.GroupVersion, storage map[string]rest.Storage, codecs runtime.NegotiatedSerializer, converter managedfields.TypeConverter) (Version, error) {
	version := v.version(gv, storage, codecs)
	version.TypeConverter = converter
	resources, _, err := version.InstallREST(container)
	if err != nil {
		return Version{}, fmt.Errorf("group version %s: %w", gv, err)
	}
	return Version{GroupVersion: gv, Resources: resources}, nil
}
