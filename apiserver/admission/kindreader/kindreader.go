// Package kindreader gives admission plugins that read the API a client, and those that read the objects of
// one kind an informer of it.
package kindreader

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Informer is an informer of a kind with its lister, L, as client-go generates it.
type Informer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

// WithClient is embedded by a plugin that reads the API. The library of the API server sets
// the client before the first request.
type WithClient struct {
	*admission.Handler
	// Client reads the storage.
	Client kubernetes.Interface
}

var (
	_ initializer.WantsExternalKubeClientSet = &WithClient{}
	_ admission.InitializationValidator      = &WithClient{}
)

// NewWithClient returns what a plugin embeds that handles the operations.
func NewWithClient(operations ...admission.Operation) WithClient {
	return WithClient{Handler: admission.NewHandler(operations...)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (w *WithClient) SetExternalKubeClientSet(client kubernetes.Interface) { w.Client = client }

// ValidateInitialization implements admission.InitializationValidator.
func (w *WithClient) ValidateInitialization() error {
	if w.Client == nil {
		return errors.New("the plugin needs a client")
	}
	return nil
}

// Node returns a node as the watch cache has it. The error is a refusal of the request.
func (w *WithClient) Node(ctx context.Context, a admission.Attributes, name string) (*corev1.Node, error) {
	node, err := w.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err):
		return nil, admission.NewForbidden(a, fmt.Errorf("node %q not found", name))
	case err != nil:
		return nil, admission.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", name, err))
	}
	return node, nil
}

// Reader is embedded by a plugin that reads the objects of one kind. Its client is for what
// the informer has not seen yet.
type Reader[L any] struct {
	WithClient
	// Lister has the objects of the informer. They may be some milliseconds old, and
	// complete only once Ready returns nil.
	Lister L

	informer func(informers.SharedInformerFactory) Informer[L]
}

var _ initializer.WantsExternalKubeInformerFactory = &Reader[any]{}

// New returns the reader of a plugin that handles the operations. The function returns
// the informer of the plugin's kind.
func New[L any](informer func(informers.SharedInformerFactory) Informer[L], operations ...admission.Operation) Reader[L] {
	return Reader[L]{WithClient: NewWithClient(operations...), informer: informer}
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (r *Reader[L]) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	of := r.informer(f)
	r.Lister = of.Lister()
	r.SetReadyFunc(of.Informer().HasSynced)
}

// ValidateInitialization implements admission.InitializationValidator.
func (r *Reader[L]) ValidateInitialization() error {
	if any(r.Lister) == nil {
		return errors.New("the plugin needs informers")
	}
	return r.WithClient.ValidateInitialization()
}

// Ready waits until the informer has synced, 10 seconds at most. The error is a refusal
// of the request.
func (r *Reader[L]) Ready(a admission.Attributes) error {
	if !r.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	return nil
}

// Get returns an object from a lister or, since the informer may not have seen a new
// object yet, from the storage. The error is that of the lister or of the client.
func Get[T any](ctx context.Context, name string, lister func(string) (T, error), client func(context.Context, string, metav1.GetOptions) (T, error)) (T, error) {
	object, err := lister(name)
	if apierrors.IsNotFound(err) {
		return client(ctx, name, metav1.GetOptions{})
	}
	return object, err
}
