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
)

// clientset is as much of a clientset as the library's Reconciler uses: the
// writing of EndpointSlices, here by a client that works in any group domain.
// The rest is nil.
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

// writer writes the slices of one service in one reconciliation. The library
// names the slices that it changes; writer adds which version of them it has
// seen, so that nobody's change in between is lost.
type writer struct {
	discoveryclient.EndpointSliceInterface
	ctx    context.Context // the library has none
	client client.Client
	owners string // the API version of services
	seen   map[string]*discoveryv1.EndpointSlice
	errs   []error
}

// newWriter makes a writer that has seen these slices, and leaves them to the
// library.
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

// libraryOwners is the API version of services that the library knows, whatever
// the group domain.
const libraryOwners = "v1"

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

// Delete implements discoveryclient.EndpointSliceInterface. A slice that is gone
// already, or another of the same name, needs no deletion.
func (w *writer) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	seen := w.seen[name]
	err := w.client.Delete(w.ctx, seen, client.Preconditions{UID: &seen.UID})
	return w.note(client.IgnoreNotFound(err))
}

func (w *writer) note(err error) error {
	if err != nil {
		w.errs = append(w.errs, err)
	}
	return err
}

// err is what has gone wrong, as the API server has said it: the library leaves
// only the text of it.
func (w *writer) err() error { return errors.Join(w.errs...) }

// nodes finds nodes for the library.
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
	return pointers(list.Items), nil
}

var _ corelisters.NodeLister = nodes{}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}
