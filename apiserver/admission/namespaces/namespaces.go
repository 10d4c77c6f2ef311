// Package namespaces reads namespaces for the admission plugins that need them.
package namespaces

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// Reader is embedded by plugins that read namespaces.
type Reader struct {
	kindreader.Reader[corelisters.NamespaceLister]
}

// NewReader returns a reader for a plugin that handles the operations.
func NewReader(operations ...admission.Operation) Reader {
	return Reader{kindreader.New(func(f informers.SharedInformerFactory) kindreader.Informer[corelisters.NamespaceLister] {
		return f.Core().V1().Namespaces()
	}, operations...)}
}

// Of returns the namespace of a request. The informer may not have seen a new
// namespace yet. The error is one for the client: NotFound if there is none.
func (r *Reader) Of(ctx context.Context, a admission.Attributes) (*corev1.Namespace, error) {
	if err := r.Ready(a); err != nil {
		return nil, err
	}
	namespace, err := kindreader.Get(ctx, a.GetNamespace(), r.Lister.Get, r.Client.CoreV1().Namespaces().Get)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, apierrors.NewInternalError(err)
	}
	return namespace, err
}

// Within reports whether a request is for an object in a namespace. The Go type of
// a Namespace is the same for every group domain.
func Within(a admission.Attributes) bool {
	_, isNamespace := a.GetObject().(*corev1.Namespace)
	_, wasNamespace := a.GetOldObject().(*corev1.Namespace)
	return a.GetNamespace() != "" && !isNamespace && !wasNamespace
}
