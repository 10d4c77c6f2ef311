package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/internal/featuregates"
)

// Env is what a controller's Setup gets. Kinds are Go types everywhere in it,
// so that a controller works in any group domain.
type Env struct {
	// Manager runs the controller once this process is elected. Its cache is
	// shared by all controllers: one watch per kind in the process.
	Manager manager.Manager
	// Client is the controller's own. It reads from the shared cache, and first
	// waits until the cache has what this client has written, so that no sync
	// acts on a state older than its own writes. The cache has no managed fields:
	// write with patches, or with updates of subresources.
	Client client.Client
	// Live reads from the API server instead of the cache.
	Live client.Client
	// Metadata reads and writes the metadata of any resource that Discovery
	// finds.
	Metadata  metadata.Interface
	Discovery *discovery.Discovery
	Clock     clock.WithTicker

	// Served reports whether the API server serves the kind of an object.
	Served func(obj client.Object) (bool, error)

	// Gate returns the value of a feature gate, and whether the user has set it.
	Gate func(name string) (on, set bool)

	// RootCA are the certificates, in PEM, by which pods verify the API server. They
	// are empty if the system's certificates do that.
	RootCA []byte

	// Broadcast returns a new broadcaster, which writes the events of one component.
	Broadcast func() record.EventBroadcaster
	// Indexes are the indexes of the shared cache.
	Indexes *Indexes
}

// On reports whether a feature gate is on: as the user has set it, else as it is by default at
// the release of the API server.
func (e *Env) On(ctx context.Context, gate string) (bool, error) {
	if on, set := e.Gate(gate); set {
		return on, nil
	}
	r, err := e.Discovery.Release(ctx)
	if err != nil {
		return false, err
	}
	return featuregates.On(r, gate), nil
}

// Recorder returns a recorder of events whose source is the component, such as
// "deployment-controller", which kubectl describe shows in the column From. A
// broadcaster writes one event after another, and drops those beyond the first 1,000
// that wait; with one for each component, a rollout does not drop the events of others.
func (e *Env) Recorder(component string) record.EventRecorder {
	return e.Broadcast().NewRecorder(e.Manager.GetScheme(), corev1.EventSource{Component: component})
}

// Index is a field index of the cache, used in lists with
// client.MatchingFields{index.Name: value}.
type Index struct {
	Name   string
	Object client.Object
	// Values returns the values under which an object is found.
	Values client.IndexerFunc
}

// Indexes adds indexes to a cache: each once, even if several controllers need
// it.
type Indexes struct {
	indexer client.FieldIndexer
	added   map[string]bool
}

// NewIndexes returns the indexes of a cache that has none yet.
func NewIndexes(indexer client.FieldIndexer) *Indexes {
	return &Indexes{indexer: indexer, added: map[string]bool{}}
}

// Need adds those of the indexes that the cache does not have yet. It is called
// in Setup only, and is not safe for concurrent use.
func (i *Indexes) Need(ctx context.Context, indexes ...Index) error {
	for _, index := range indexes {
		key := fmt.Sprintf("%T %s", index.Object, index.Name)
		if i.added[key] {
			continue
		}
		if err := i.indexer.IndexField(ctx, index.Object, index.Name, index.Values); err != nil {
			return fmt.Errorf("index %s of %T: %w", index.Name, index.Object, err)
		}
		i.added[key] = true
	}
	return nil
}
