// Package rewrite owns the rewriting of stored objects in the form in which the API
// server would store them now: encrypted with its first provider, in the storage
// version.
package rewrite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"svc.dev/svc/internal/storageversion"
)

// Rewriter rewrites objects through an API server.
type Rewriter struct {
	client     metadata.Interface
	objects    dynamic.Interface
	extensions apiextensions.Interface
	discovery  discovery.DiscoveryInterface
	aggregator aggregator.Interface
}

// New returns a rewriter. It does not connect yet.
func New(config *rest.Config) (*Rewriter, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1                           // the API server has flow control
	config.WarningHandler = rest.NoWarnings{} // that a version is deprecated: all are read
	var r Rewriter
	var err error
	if r.client, err = metadata.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.extensions, err = apiextensions.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	if r.aggregator, err = aggregator.NewForConfig(config); err != nil {
		return nil, err
	}
	return &r, nil
}

// Resources returns the resources that are named, as resource or resource.group, or
// without names all that the API server stores. It leaves those of extension servers
// out. The error lists the names of no such resource.
func (r *Rewriter) Resources(ctx context.Context, names []string) ([]schema.GroupVersionResource, error) {
	remote, err := r.remoteGroups(ctx)
	if err != nil {
		return nil, err
	}
	lists, err := r.discovery.ServerPreferredResources()
	if err := own(err, remote); err != nil {
		return nil, err
	}
	var found []schema.GroupVersionResource
	unknown := slices.Clone(names)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			stored := slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "patch")
			if !stored || strings.Contains(resource.Name, "/") || slices.Contains(remote, gv) {
				continue
			}
			gr := schema.GroupResource{Group: gv.Group, Resource: resource.Name}
			named := func(name string) bool { return name == gr.String() || name == gr.Resource }
			if len(names) > 0 && !slices.ContainsFunc(names, named) {
				continue
			}
			unknown = slices.DeleteFunc(unknown, named)
			found = append(found, gr.WithVersion(gv.Version))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown resources: %s", strings.Join(unknown, ", "))
	}
	return found, nil
}

// own returns an error of discovery unless it is of extension servers only.
func own(err error, remote []schema.GroupVersion) error {
	failed, ok := discovery.GroupDiscoveryFailedErrorGroups(err)
	if !ok {
		return err
	}
	for gv := range failed {
		if !slices.Contains(remote, gv) {
			return err
		}
	}
	return nil
}

// remoteGroups returns the versions that extension servers serve.
func (r *Rewriter) remoteGroups(ctx context.Context) ([]schema.GroupVersion, error) {
	services, err := r.aggregator.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var remote []schema.GroupVersion
	for _, s := range services.Items {
		if s.Spec.Service != nil {
			remote = append(remote, schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version})
		}
	}
	return remote, nil
}

// Rewrite rewrites the objects of a resource that are stored in another form than the
// present one. Objects that are deleted meanwhile do not count. The error joins those
// of all objects; the others are rewritten.
func (r *Rewriter) Rewrite(ctx context.Context, resource schema.GroupVersionResource) (storageversion.Result, error) {
	return storageversion.Objects{Client: r.client, Resource: resource}.Rewrite(ctx)
}
