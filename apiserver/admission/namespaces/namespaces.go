// Package namespaces reads namespaces for the admission plugins that need them.
package namespaces

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// Reader is embedded by plugins that read namespaces. The library initializes it.
type Reader struct {
	*admission.Handler
	Client kubernetes.Interface
	Lister corelisters.NamespaceLister
}

var (
	_ initializer.WantsExternalKubeClientSet       = &Reader{}
	_ initializer.WantsExternalKubeInformerFactory = &Reader{}
)

// NewReader returns a reader for a plugin that handles the operations.
func NewReader(operations ...admission.Operation) Reader {
	return Reader{Handler: admission.NewHandler(operations...)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (r *Reader) SetExternalKubeClientSet(client kubernetes.Interface) { r.Client = client }

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (r *Reader) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	namespaces := f.Core().V1().Namespaces()
	r.Lister = namespaces.Lister()
	r.SetReadyFunc(namespaces.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (r *Reader) ValidateInitialization() error {
	if r.Client == nil || r.Lister == nil {
		return errors.New("the plugin needs a client and informers")
	}
	return nil
}

// Of returns the namespace of a request. The informer may not have seen a new
// namespace yet. The error is one for the client: NotFound if there is none.
func (r *Reader) Of(ctx context.Context, a admission.Attributes) (*corev1.Namespace, error) {
	if !r.WaitForReady() {
		return nil, admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	namespace, err := r.Lister.Get(a.GetNamespace())
	if apierrors.IsNotFound(err) {
		namespace, err = r.Client.CoreV1().Namespaces().Get(ctx, a.GetNamespace(), metav1.GetOptions{})
	}
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
