package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// SystemNamespaces are the namespaces that every cluster has.
func SystemNamespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// EnsureNamespaces creates the namespaces that do not exist.
func EnsureNamespaces(ctx context.Context, client corev1client.NamespacesGetter, names ...string) error {
	return each(ctx, names, func(ctx context.Context, name string) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := createIfAbsent(ctx, client.Namespaces(), namespace); err != nil {
			return fmt.Errorf("ensure namespace %s: %w", name, err)
		}
		return nil
	})
}

// getCreator is the part of a typed client that createIfAbsent needs.
type getCreator[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
}

// createIfAbsent creates the object unless one of its name exists. It does not
// change an existing one.
func createIfAbsent[T metav1.Object](ctx context.Context, client getCreator[T], obj T) error {
	_, err := client.Get(ctx, obj.GetName(), cached())
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = client.Create(ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
