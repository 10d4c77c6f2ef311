package objects

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func trustBundles() client.ObjectList { return &certificatesv1.ClusterTrustBundleList{} }

// olderTrustBundles are of the releases before 1.37.
var olderTrustBundles = []func() client.ObjectList{
	func() client.ObjectList { return &certificatesv1beta1.ClusterTrustBundleList{} },
	func() client.ObjectList { return &certificatesv1alpha1.ClusterTrustBundleList{} },
}

// slimBundle keeps a bundle's name, labels and specification, which is the same in all
// versions.
func slimBundle(o client.Object) (kept client.Object, immutable bool) {
	bundle := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels()}}
	switch b := o.(type) {
	case *certificatesv1.ClusterTrustBundle:
		bundle.Spec = b.Spec
	case *certificatesv1beta1.ClusterTrustBundle:
		bundle.Spec = certificatesv1.ClusterTrustBundleSpec(b.Spec)
	case *certificatesv1alpha1.ClusterTrustBundle:
		bundle.Spec = certificatesv1.ClusterTrustBundleSpec(b.Spec)
	}
	return bundle, false
}

// bundleReference returns what a source of a projected volume shows: the bundle of a name,
// or those of a signer.
func bundleReference(source *corev1.ClusterTrustBundleProjection) reference {
	if source.Name != nil {
		return reference{kind: trustBundle, name: *source.Name}
	}
	return reference{kind: signerBundles, name: ptr.Deref(source.SignerName, "")}
}

// TrustBundles returns the ClusterTrustBundles that a source of a registered pod's volume
// selects, sorted by name: the one that it names, or those of its signer with its labels. A
// source without a label selector selects none of a signer. There may be none, which is
// not an error. It waits like [Store.ConfigMap].
func (s *Store) TrustBundles(ctx context.Context, source *corev1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error) {
	ref := bundleReference(source)
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	e, err := s.listed(ctx, ref)
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if ref.kind == trustBundle {
		if e.object == nil {
			return nil, nil
		}
		return []*certificatesv1.ClusterTrustBundle{e.object.(*certificatesv1.ClusterTrustBundle)}, nil
	}
	var selected []*certificatesv1.ClusterTrustBundle
	for _, name := range slices.Sorted(maps.Keys(e.bundles)) {
		if bundle := e.bundles[name]; selector.Matches(labels.Set(bundle.Labels)) {
			selected = append(selected, bundle)
		}
	}
	return selected, nil
}

// bundlesReceiver receives the changes of all bundles of a signer.
type bundlesReceiver struct{ receiver }

func (r *bundlesReceiver) replace(list []client.Object) bool {
	all := make(map[string]*certificatesv1.ClusterTrustBundle, len(list))
	for _, o := range list {
		kept, _ := slimBundle(o)
		all[o.GetName()] = kept.(*certificatesv1.ClusterTrustBundle)
	}
	r.keep(all)
	return false
}

func (r *bundlesReceiver) set(o client.Object) bool {
	kept, _ := slimBundle(o)
	all := r.copied()
	all[o.GetName()] = kept.(*certificatesv1.ClusterTrustBundle)
	r.keep(all)
	return false
}

func (r *bundlesReceiver) remove(o client.Object) {
	all := r.copied()
	delete(all, o.GetName())
	r.keep(all)
}

// copied returns a copy of the bundles, which only the receiver changes.
func (r *bundlesReceiver) copied() map[string]*certificatesv1.ClusterTrustBundle {
	r.store.mutex.Lock()
	defer r.store.mutex.Unlock()
	if r.entry.bundles == nil {
		return map[string]*certificatesv1.ClusterTrustBundle{}
	}
	return maps.Clone(r.entry.bundles)
}

func (r *bundlesReceiver) keep(all map[string]*certificatesv1.ClusterTrustBundle) {
	r.update(func(e *entry) (changed bool) {
		changed = !reflect.DeepEqual(e.bundles, all)
		e.bundles = all
		return changed
	})
}
