package namespace

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/discovery"
)

// content deletes the objects in namespaces.
type content struct {
	metadata  metadata.Interface
	discovery *discovery.Discovery
	// core is the API group of pods: empty, except in a group domain other than
	// Kubernetes'.
	core string
}

// pageSize is the number of objects listed at a time.
const pageSize = 500

// delete deletes the content of the namespace, phase by phase, and returns what
// remains.
func (c content) delete(ctx context.Context, namespace string, found discovery.Snapshot) remaining {
	left := remaining{undiscovered: mayHoldObjects(found.Failed)}
	for _, phase := range deletionPhases(found.Resources, c.core) {
		for _, r := range phase {
			c.deleteResource(ctx, namespace, r, &left)
		}
		if left.blocksNextPhase() {
			break
		}
	}
	return left
}

// deleteResource deletes the objects of one resource and adds those that remain.
func (c content) deleteResource(ctx context.Context, namespace string, r discovery.Resource, left *remaining) {
	objects := c.metadata.Resource(r.GroupVersionResource).Namespace(namespace)
	some, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil && len(some.Items) == 0 {
		return
	}
	if err == nil {
		err = c.deleteObjects(ctx, objects, r)
	}
	if err == nil {
		err = count(ctx, objects, r, left)
	}
	// A resource that is no longer served, or that cannot be listed, counts as empty.
	if err != nil && !unsupported(err) {
		left.failed = append(left.failed, fmt.Errorf("%s: %w", r.GroupResource(), err))
	}
}

// unsupported reports whether an error says that the server does not support a request: an
// aggregated API server may answer so, also with "not found", to a verb that discovery has.
func unsupported(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// deleteObjects deletes the objects of one resource, as far as the server does that.
func (c content) deleteObjects(ctx context.Context, objects metadata.ResourceInterface, r discovery.Resource) error {
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if r.Can("deletecollection") {
		err := objects.DeleteCollection(ctx, options, metav1.ListOptions{})
		if err == nil || !unsupported(err) {
			return err
		}
	}
	return pages(ctx, objects, func(page *metav1.PartialObjectMetadataList) error {
		var errs []error
		for i := range page.Items {
			options := options
			options.Preconditions = metav1.NewUIDPreconditions(string(page.Items[i].UID))
			if err := objects.Delete(ctx, page.Items[i].Name, options); err != nil && !unsupported(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// count adds the objects that remain.
func count(ctx context.Context, objects metadata.ResourceInterface, r discovery.Resource, left *remaining) error {
	return pages(ctx, objects, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			left.add(r.GroupVersionResource, &page.Items[i])
		}
		return nil
	})
}

// pages calls do with all objects, page by page. The pages need not be from the
// same resource version, but the last one must have an empty continue token.
func pages(ctx context.Context, objects metadata.ResourceInterface, do func(*metav1.PartialObjectMetadataList) error) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := objects.List(ctx, options)
		if err != nil {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}
