package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"svc.dev/svc/controllers/discovery"
)

// scales reads the scale of the controllers of pods.
type scales struct {
	client    client.Client
	discovery *discovery.Discovery
}

// owner is a controller of pods, with its scale.
type owner struct {
	uid      types.UID
	replicas int32
}

// sum returns the sum of the scales of the pods' controllers. unmanaged are the
// names of pods without a controller.
func (s scales) sum(ctx context.Context, pods []*corev1.Pod) (sum int32, unmanaged []string, err error) {
	seen := map[types.UID]bool{}
	owners := map[types.UID]int32{}
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			unmanaged = append(unmanaged, pod.Name)
			continue
		}
		if seen[ref.UID] {
			continue
		}
		seen[ref.UID] = true
		o, err := s.of(ctx, pod.Namespace, ref)
		if err != nil {
			return 0, nil, err
		}
		if o == nil {
			return 0, nil, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		// The ReplicaSets of a rollout have the same Deployment.
		owners[o.uid] = o.replicas
	}
	for _, replicas := range owners {
		sum += replicas
	}
	return sum, unmanaged, nil
}

// of returns the owner that a reference names, or nil if it does not exist; for a
// ReplicaSet of a Deployment, that is the Deployment. Workloads are read from the
// cache, custom resources from their scale subresource.
func (s scales) of(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*owner, error) {
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	for _, workload := range []client.Object{&appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{}, &appsv1.Deployment{}} {
		matches, err := s.refersTo(ref, workload)
		if err != nil {
			return nil, err
		}
		if !matches {
			continue
		}
		err = s.client.Get(ctx, key, workload)
		if err != nil || workload.GetUID() != ref.UID {
			return nil, client.IgnoreNotFound(err)
		}
		if controller := metav1.GetControllerOfNoCopy(workload); controller != nil {
			if o, err := s.deployment(ctx, namespace, controller); o != nil || err != nil {
				return o, err
			}
		}
		return &owner{workload.GetUID(), replicas(workload)}, nil
	}
	return s.custom(ctx, key, ref)
}

// deployment returns the Deployment that a reference names, or nil.
func (s scales) deployment(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*owner, error) {
	if matches, err := s.refersTo(ref, &appsv1.Deployment{}); !matches || err != nil {
		return nil, err
	}
	return s.of(ctx, namespace, ref)
}

// refersTo reports whether a reference names an object of a kind, in any version.
func (s scales) refersTo(ref *metav1.OwnerReference, kind client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(kind, s.client.Scheme())
	if err != nil {
		return false, err
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gvk.GroupKind() == schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, err
}

func replicas(workload client.Object) int32 {
	switch w := workload.(type) {
	case *appsv1.ReplicaSet:
		return ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		return ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.Deployment:
		return ptr.Deref(w.Spec.Replicas, 1)
	case *corev1.ReplicationController:
		return ptr.Deref(w.Spec.Replicas, 1)
	}
	return 0
}

// custom reads the scale of any other kind from the API server.
func (s scales) custom(ctx context.Context, key client.ObjectKey, ref *metav1.OwnerReference) (*owner, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	mapping, err := s.client.RESTMapper().RESTMapping(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
	if err != nil {
		return nil, err
	}
	obj, scale := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	err = s.client.SubResource("scale").Get(ctx, obj, scale)
	switch {
	case apierrors.IsNotFound(err): // either the owner or the subresource
		served, err := s.discovery.Serves(ctx, mapping.Resource, "scale")
		if err == nil && !served {
			err = fmt.Errorf("%s does not implement the scale subresource", mapping.Resource.GroupResource())
		}
		return nil, err
	case err != nil:
		return nil, err
	case scale.GetUID() != ref.UID:
		return nil, nil
	}
	n, _, err := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	return &owner{ref.UID, int32(n)}, err
}
