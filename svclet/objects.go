package svclet

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/container"
	store "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/volume"
)

// objects are the API's objects that pods show or need.
type objects interface {
	container.Objects
	volume.Objects
	// Register begins to follow what a pod names, Unregister ends it.
	Register(p *corev1.Pod)
	Unregister(uid types.UID)
	// RuntimeHandler is that of a RuntimeClass.
	RuntimeHandler(ctx context.Context, class string) (string, error)
}

// apiObjects are those of an API server.
type apiObjects struct {
	*store.Store
	*api
}

// noObjects are those of an agent by itself.
type noObjects struct{ store.None }

// RuntimeHandler implements objects.
func (noObjects) RuntimeHandler(context.Context, string) (string, error) {
	return "", errors.New("an agent without an API server knows no runtime classes; leave runtimeClassName out")
}
