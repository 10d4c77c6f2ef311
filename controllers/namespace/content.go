package namespace

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/discovery"
)

// content deletes what namespaces hold.
type content struct {
	metadata  metadata.Interface
	discovery *discovery.Discovery
	// core is the name of the group of pods: empty, unless the group domain is
	// another than Kubernetes'.
	core string
}

// pageSize is how many objects are counted at a time.
const pageSize = 500

// delete deletes everything in the namespace and returns what remains. Pods go
// first, and the rest only when they have gone, so that what protects running
// pods (network policies, say) is there as long as they are: KEP-5080.
func (c content) delete(ctx context.Context, ns *corev1.Namespace, found discovery.Snapshot) remains {
	left := remains{undiscovered: mayHoldObjects(found.Failed)}
	var pods, others []discovery.Resource
	for _, r := range found.Resources {
		switch {
		case !holdsObjects(r):
		case r.Group == c.core && r.Resource == "pods":
			pods = append(pods, r)
		default:
			others = append(others, r)
		}
	}
	for _, r := range pods {
		c.deleteResource(ctx, ns.Name, r, &left)
	}
	if len(left.resources) > 0 || len(left.failed) > 0 {
		return left
	}
	for _, r := range others {
		c.deleteResource(ctx, ns.Name, r, &left)
	}
	return left
}

// holdsObjects tells whether a namespace may hold objects of the resource.
func holdsObjects(r discovery.Resource) bool {
	return r.Namespaced && r.Can("list", "delete")
}

// mayHoldObjects leaves out the failures of group versions that had no
// resources in namespaces when they were discovered last.
func mayHoldObjects(failed failures) failures {
	may := failures{}
	for gv, failure := range failed {
		holds := !failure.Known
		for _, r := range failure.Last {
			holds = holds || holdsObjects(r)
		}
		if holds {
			may[gv] = failure
		}
	}
	return may
}

// deleteResource deletes the objects of one resource and adds what remains.
func (c content) deleteResource(ctx context.Context, namespace string, r discovery.Resource, left *remains) {
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
	// A resource that is no longer served has no objects any more.
	if err != nil && !apierrors.IsNotFound(err) {
		left.failed = append(left.failed, fmt.Errorf("%s: %w", r.GroupResource(), err))
	}
}

func (c content) deleteObjects(ctx context.Context, objects metadata.ResourceInterface, r discovery.Resource) error {
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	if r.Can("deletecollection") {
		err := objects.DeleteCollection(ctx, options, metav1.ListOptions{})
		if !apierrors.IsMethodNotSupported(err) {
			return err
		}
	}
	return pages(ctx, objects, func(page *metav1.PartialObjectMetadataList) error {
		var errs []error
		for i := range page.Items {
			options := options
			options.Preconditions = metav1.NewUIDPreconditions(string(page.Items[i].UID))
			if err := objects.Delete(ctx, page.Items[i].Name, options); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// count adds the objects that remain.
func count(ctx context.Context, objects metadata.ResourceInterface, r discovery.Resource, left *remains) error {
	return pages(ctx, objects, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			left.add(r.GroupVersionResource, &page.Items[i])
		}
		return nil
	})
}

// pages calls do with all objects, page by page. The pages need not be those of
// one moment, as long as none is taken for the last that is not.
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
