// Package traffic owns clients that write, read and watch one collection of objects at
// random, and the record of what they receive.
package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/linearize/history"
)

const (
	// writers, readers and strays are numbers of clients of each server.
	writers, readers, strays = 4, 3, 4
	// equal is the number of equal watches on each server: more than eight, so that
	// the server shares them (apiserver/watchmux).
	equal = 11
	// keys is how many objects exist at most in a generation, which lasts for generation.
	keys       = 4
	generation = 2 * time.Second
	// pause is the longest time between two requests of a client.
	pause = 50 * time.Millisecond
	// lastKey is the key of the last object.
	lastKey = "last"
)

// Resource is a resource whose objects clients work with.
type Resource struct {
	metav1.TypeMeta
	Name string
	// MergePatches are the media types of its patches that merge.
	MergePatches []types.PatchType
	// Unconditional reports whether it accepts an update without a version.
	Unconditional bool
}

// Path returns the path of the collection in a namespace.
func (r Resource) Path(namespace string) string {
	prefix := "/apis/"
	if r.GroupVersionKind().Group == "" {
		prefix = "/api/"
	}
	return prefix + r.APIVersion + "/namespaces/" + namespace + "/" + r.Name
}

// ConfigMaps are built in.
func ConfigMaps() Resource {
	return Resource{metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, "configmaps", []types.PatchType{types.MergePatchType, types.StrategicMergePatchType}, true}
}

// Traffic is what clients do with the objects of a namespace, which has none before.
type Traffic struct {
	Servers   []*rest.Config
	Resource  Resource
	Namespace string
	// Version is one of the collection while it is empty.
	Version uint64
	Seed    uint64

	record  record
	watches sync.WaitGroup
	closing context.CancelFunc // ends the watches
}

// Run writes, reads and watches until the context ends. Finish must follow, unless it
// returns an error.
func (t *Traffic) Run(ctx context.Context) error {
	t.record.start = time.Now()
	t.record.see(t.Version)
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.closing = cancel
	var clients sync.WaitGroup
	defer clients.Wait()
	n := 0
	for _, server := range t.Servers {
		start := func(group *sync.WaitGroup, work func(*client)) error {
			c, err := t.newClient(server, n)
			if err != nil {
				cancel()
				return err
			}
			n++
			group.Go(func() { work(c) })
			return nil
		}
		for range writers {
			if err := start(&clients, func(c *client) { c.write(ctx) }); err != nil {
				return err
			}
		}
		for range readers {
			if err := start(&clients, func(c *client) { c.read(ctx) }); err != nil {
				return err
			}
		}
		for range strays {
			if err := start(&clients, func(c *client) { c.stray(ctx) }); err != nil {
				return err
			}
		}
		for i := range 2 * equal {
			selector := history.Selector{Label: []string{"", "even"}[i%2]}
			if err := start(&t.watches, func(c *client) { c.follow(watching, selector, t.Version, i%4 < 2) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// Finish makes the last changes, waits until the watches have them, and returns the record.
func (t *Traffic) Finish(ctx context.Context) (*Result, error) {
	defer t.closing()
	c, err := t.newClient(t.Servers[0], -1)
	if err != nil {
		return nil, err
	}
	// One label matches before the change, the other afterwards: a watch of either has an event.
	var version uint64
	for version == 0 && ctx.Err() == nil {
		version = c.createLast(ctx)
	}
	t.record.last.Store(version)
	for ctx.Err() == nil && !c.changeLast(ctx, version) {
		c.pause(ctx)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("no response to the last change: %w", ctx.Err())
	}
	stopped := context.AfterFunc(ctx, t.closing)
	defer stopped()
	t.watches.Wait()
	return &Result{operations: t.record.operations, run: t.record.run, last: version, unexpected: t.record.unexpected}, nil
}

func (t *Traffic) newClient(server *rest.Config, id int) (*client, error) {
	config := rest.CopyConfig(server)
	config.Timeout = 0
	// Clients of one function would share its connection.
	dialer := dialer()
	config.Dial = dialer.DialContext
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &client{
		traffic: t, id: id, http: &http.Client{Transport: transport},
		url:    config.Host + t.Resource.Path(t.Namespace),
		random: rand.New(rand.NewPCG(t.Seed, uint64(id+1))),
		known:  map[string]history.Object{},
	}, nil
}

// currentGeneration is the number of the generation that clients work with.
func (t *Traffic) currentGeneration() int { return int(time.Since(t.record.start) / generation) }

// keysOf are the keys of the objects of a generation.
func keysOf(generation int) []string {
	var all []string
	for i := range keys {
		all = append(all, fmt.Sprintf("g%d-%d", generation, i))
	}
	return all
}
