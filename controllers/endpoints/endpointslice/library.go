package endpointslice

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/internal/items"
)

// clientset is the part of a clientset that the library's Reconciler uses: it
// writes EndpointSlices with a client that works in any group domain. All other
// methods panic.
type clientset struct {
	kubernetes.Interface
	writer *writer
}

// DiscoveryV1 implements kubernetes.Interface.
func (c clientset) DiscoveryV1() discoveryclient.DiscoveryV1Interface { return group{writer: c.writer} }

type group struct {
	discoveryclient.DiscoveryV1Interface
	writer *writer
}

// EndpointSlices implements discoveryclient.DiscoveryV1Interface.
func (g group) EndpointSlices(string) discoveryclient.EndpointSliceInterface { return g.writer }

// writer writes the slices of one service in one sync. It adds the resource
// version that was read to the slices that the library updates, so that a change
// by another client in between is a conflict.
type writer struct {
	discoveryclient.EndpointSliceInterface
	ctx    context.Context // the library has none
	client client.Client
	owners string // the API version of services
	seen   map[string]*discoveryv1.EndpointSlice
	errs   []error
}

// newWriter returns a writer for the existing slices, which the library may change
// afterwards.
func newWriter(ctx context.Context, c client.Client, seen []*discoveryv1.EndpointSlice) (*writer, error) {
	service, err := apiutil.GVKForObject(&corev1.Service{}, c.Scheme())
	if err != nil {
		return nil, err
	}
	w := &writer{ctx: ctx, client: c, owners: service.GroupVersion().String(), seen: map[string]*discoveryv1.EndpointSlice{}}
	for _, s := range seen {
		w.seen[s.Name] = s
		renameOwners(s, w.owners, libraryOwners)
	}
	return w, nil
}

// libraryOwners is the API version of services that the library uses in owner
// references in any group domain.
const libraryOwners = "v1"

// renameOwners changes the API version of services in the owner references.
func renameOwners(slice *discoveryv1.EndpointSlice, from, to string) {
	for i := range slice.OwnerReferences {
		if ref := &slice.OwnerReferences[i]; ref.Kind == "Service" && ref.APIVersion == from {
			ref.APIVersion = to
		}
	}
}

// Create implements discoveryclient.EndpointSliceInterface.
func (w *writer) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	renameOwners(slice, libraryOwners, w.owners)
	return slice, w.note(w.client.Create(w.ctx, slice))
}

// Update implements discoveryclient.EndpointSliceInterface.
func (w *writer) Update(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	if seen := w.seen[slice.Name]; seen != nil {
		slice.UID, slice.ResourceVersion = seen.UID, seen.ResourceVersion
	}
	renameOwners(slice, libraryOwners, w.owners)
	return slice, w.note(w.client.Update(w.ctx, slice))
}

// Delete implements discoveryclient.EndpointSliceInterface. It is no error if the
// slice was deleted already.
func (w *writer) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	seen := w.seen[name]
	err := w.client.Delete(w.ctx, seen, client.Preconditions{UID: &seen.UID})
	return w.note(client.IgnoreNotFound(err))
}

// note records the error of a write and returns it.
func (w *writer) note(err error) error {
	if err != nil {
		w.errs = append(w.errs, err)
	}
	return err
}

// err returns the errors of all writes. The library's error has only their text.
func (w *writer) err() error { return errors.Join(w.errs...) }

// nodes lists nodes for the library.
type nodes struct {
	ctx    context.Context
	reader client.Reader
}

// Get implements corelisters.NodeLister.
func (n nodes) Get(name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	return node, n.reader.Get(n.ctx, types.NamespacedName{Name: name}, node, client.UnsafeDisableDeepCopy)
}

// List implements corelisters.NodeLister.
func (n nodes) List(selector labels.Selector) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := n.reader.List(n.ctx, &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}

var _ corelisters.NodeLister = nodes{}
