package agent

import (
	"context"
	"errors"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/executor"
	store "svc.dev/svc/svclet/objects"
	"svc.dev/svc/svclet/volume"
)

// objects are the objects of the API that pods refer to.
type objects interface {
	executor.Objects
	volume.Objects
}

// apiObjects are those of an API server.
type apiObjects struct {
	*store.Store
	*apiclient.Clients
}

// noObjects are those of standalone mode.
type noObjects struct{ store.None }

// RuntimeHandler implements executor.Objects.
func (noObjects) RuntimeHandler(context.Context, string) (string, error) {
	return "", errors.New("runtime classes need an API server: leave runtimeClassName out")
}
