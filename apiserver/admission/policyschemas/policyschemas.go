// Package policyschemas owns when the OpenAPI documents are read for mutating admission policies.
package policyschemas

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
)

// Lazy returns the client with an index of the OpenAPI documents (version 3) that names the
// group versions of discovery, and is read when a policy needs the document of one. The plugin
// of mutating admission policies asks for the index every five seconds, whether there are
// policies or not; it has a hash of each document, for which the server makes all routes
// (docs/decisions/lazy-routes.md).
func Lazy(client kubernetes.Interface) kubernetes.Interface {
	d := client.Discovery()
	return lazyClient{client, lazyDiscovery{d, &index{discovery: d, documents: d.OpenAPIV3()}}}
}

type lazyClient struct {
	kubernetes.Interface
	discovery lazyDiscovery
}

// Discovery implements kubernetes.Interface.
func (c lazyClient) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

type lazyDiscovery struct {
	discovery.DiscoveryInterfaces
	index *index
}

// OpenAPIV3 implements discovery.OpenAPIV3SchemaInterface.
func (d lazyDiscovery) OpenAPIV3() openapi.Client { return d.index }

// OpenAPIV3WithContext implements discovery.OpenAPIV3SchemaInterfaceWithContext.
func (d lazyDiscovery) OpenAPIV3WithContext(context.Context) openapi.ClientWithContext {
	return openapi.ToClientWithContext(d.index)
}

type index struct {
	discovery discovery.DiscoveryInterface
	documents openapi.Client
	needed    atomic.Bool // once a document has been
}

// Paths implements openapi.Client.
func (i *index) Paths() (map[string]openapi.GroupVersion, error) {
	if i.needed.Load() {
		return i.documents.Paths()
	}
	var groups metav1.APIGroupList
	if err := i.discovery.RESTClient().Get().AbsPath("/apis").Do(context.Background()).Into(&groups); err != nil {
		return nil, fmt.Errorf("groups of the API: %w", err)
	}
	read := sync.OnceValues(func() (map[string]openapi.GroupVersion, error) {
		i.needed.Store(true)
		return i.documents.Paths()
	})
	paths := map[string]openapi.GroupVersion{}
	add := func(path string) { paths[path] = document{path, read} }
	add("api/v1")
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			add("apis/" + version.GroupVersion)
		}
	}
	return paths, nil
}

// document is one of which the index has not been read yet.
type document struct {
	path string
	read func() (map[string]openapi.GroupVersion, error)
}

func (d document) find() (openapi.GroupVersion, error) {
	paths, err := d.read()
	if err != nil {
		return nil, err
	}
	found, ok := paths[d.path]
	if !ok {
		return nil, fmt.Errorf("no OpenAPI document of %s", d.path)
	}
	return found, nil
}

// Schema implements openapi.GroupVersion.
func (d document) Schema(contentType string) ([]byte, error) {
	found, err := d.find()
	if err != nil {
		return nil, err
	}
	return found.Schema(contentType)
}

// ServerRelativeURL implements openapi.GroupVersion. It is empty if there is no document, of which
// Schema returns the error.
func (d document) ServerRelativeURL() string {
	found, err := d.find()
	if err != nil {
		return ""
	}
	return found.ServerRelativeURL()
}
