package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeIDAnnotation has the node's IDs by driver, as JSON.
const nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"

// publishNode writes what a driver says of the node into the Node and the CSINode.
func (m *Manager) publishNode(ctx context.Context, name string, info *spec.NodeGetInfoResponse) error {
	labels := info.GetAccessibleTopology().GetSegments()
	node, err := m.updateNode(ctx, func(node *corev1.Node) error { return describe(node, name, info.GetNodeId(), labels) })
	if err != nil {
		return fmt.Errorf("describing the node for CSI driver %s: %w", name, err)
	}
	entry := storagev1.CSINodeDriver{Name: name, NodeID: info.GetNodeId(), TopologyKeys: slices.Sorted(maps.Keys(labels))}
	if most := info.GetMaxVolumesPerNode(); most > 0 {
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(int32(min(most, 1<<31-1)))} //nolint:gosec // bounded
	}
	return m.updateCSINode(ctx, node, func(all []storagev1.CSINodeDriver) []storagev1.CSINodeDriver {
		return append(without(all, name), entry)
	})
}

// withdrawNode removes what publishNode has written, but for labels, which may be older
// than the driver.
func (m *Manager) withdrawNode(ctx context.Context, name string) error {
	node, err := m.updateNode(ctx, func(node *corev1.Node) error { return describe(node, name, "", nil) })
	if err != nil {
		return fmt.Errorf("removing CSI driver %s from the node: %w", name, err)
	}
	return m.updateCSINode(ctx, node, func(all []storagev1.CSINodeDriver) []storagev1.CSINodeDriver { return without(all, name) })
}

// without returns the entries of other drivers.
func without(all []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	return slices.DeleteFunc(slices.Clone(all), func(d storagev1.CSINodeDriver) bool { return d.Name == name })
}

// describe sets the ID that a driver has for the node, which it removes if it is empty,
// and the driver's topology labels.
func describe(node *corev1.Node, driver, id string, labels map[string]string) error {
	ids := map[string]string{}
	if text := node.Annotations[nodeIDAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return fmt.Errorf("annotation %s of the node is not JSON: remove it: %w", nodeIDAnnotation, err)
		}
	}
	if ids[driver] = id; id == "" {
		delete(ids, driver)
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if node.Annotations[nodeIDAnnotation] = string(text); len(ids) == 0 {
		delete(node.Annotations, nodeIDAnnotation)
	}
	for key, value := range labels {
		if has, found := node.Labels[key]; found && has != value {
			return fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, value, key, has)
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[key] = value
	}
	return nil
}

// updateNode patches the metadata of the Node, if change changes it, and returns the
// Node.
func (m *Manager) updateNode(ctx context.Context, change func(*corev1.Node) error) (*corev1.Node, error) {
	var node *corev1.Node
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node = &corev1.Node{}
		if err := m.o.Client.Get(ctx, client.ObjectKey{Name: m.o.NodeName}, node); err != nil {
			return err
		}
		before := node.DeepCopy()
		if err := change(node); err != nil {
			return err
		}
		if maps.Equal(before.Annotations, node.Annotations) && maps.Equal(before.Labels, node.Labels) {
			return nil
		}
		return m.o.Client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	return node, err
}

// updateCSINode changes the drivers in the CSINode, and creates it if it does not exist.
func (m *Manager) updateCSINode(ctx context.Context, node *corev1.Node, change func([]storagev1.CSINodeDriver) []storagev1.CSINodeDriver) error {
	m.csiNode.Lock()
	defer m.csiNode.Unlock()
	err := retry.OnError(retry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		found := &storagev1.CSINode{}
		err := m.o.Client.Get(ctx, client.ObjectKey{Name: node.Name}, found)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil {
			kind, err := m.o.Client.GroupVersionKindFor(node)
			if err != nil {
				return err
			}
			found = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: node.Name, UID: node.UID},
			}}}
			found.Spec.Drivers = change(nil)
			return m.o.Client.Create(ctx, found)
		}
		return m.replaceDrivers(ctx, found, change(found.Spec.Drivers))
	})
	if err != nil {
		return fmt.Errorf("writing CSINode %s: %w", node.Name, err)
	}
	return nil
}

// replaceDrivers replaces the drivers in a CSINode. Of an entry only the count of volumes may be
// changed, since release 1.35: if the API server refuses a change, the entry is removed first.
func (m *Manager) replaceDrivers(ctx context.Context, found *storagev1.CSINode, drivers []storagev1.CSINodeDriver) error {
	changed := found.DeepCopy()
	changed.Spec.Drivers = drivers
	if apiequality.Semantic.DeepEqual(found.Spec.Drivers, drivers) {
		return nil
	}
	err := m.o.Client.Patch(ctx, changed, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}))
	if !apierrors.IsInvalid(err) {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(drivers), func(d storagev1.CSINodeDriver) bool {
		i := slices.IndexFunc(found.Spec.Drivers, func(old storagev1.CSINodeDriver) bool { return old.Name == d.Name })
		return i >= 0 && !apiequality.Semantic.DeepEqual(found.Spec.Drivers[i], d)
	})
	for _, list := range [][]storagev1.CSINodeDriver{kept, drivers} {
		before := found.DeepCopy()
		if found.Spec.Drivers = list; apiequality.Semantic.DeepEqual(before.Spec.Drivers, list) {
			continue
		}
		if err := m.o.Client.Patch(ctx, found, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	return nil
}
