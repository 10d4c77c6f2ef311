package agent

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/runtime"
	"svc.dev/svc/svclet/server"
	"svc.dev/svc/svclet/server/metrics"
)

// connections are those of the agent with other processes.
type connections struct {
	clients   *apiclient.Clients // nil in standalone mode
	runtime   *runtime.Client
	listeners *server.Listeners // nil with enableServer: false
	events    *events.Recorder
	tracer    tracing.TracerProvider // nil if no spans are sent
}

// connect makes the clients of the API server and of the container runtime, opens
// the ports and makes the recorder of events.
func connect(ctx context.Context, base common) (connections, error) {
	var conn connections
	var err error
	c := base.Configuration
	if conn.tracer, err = newTracer(ctx, base); err != nil {
		return connections{}, err
	}
	if base.API != nil {
		api := rest.CopyConfig(base.API)
		api.Wrap(base.metrics.Client)
		if conn.tracer != nil {
			api.Wrap(tracing.WrapperFor(conn.tracer))
		}
		if conn.clients, err = apiclient.New(api, base.Clock); err != nil {
			return connections{}, err
		}
	}
	scheme, err := apiclient.NewScheme()
	if err != nil {
		return connections{}, err
	}
	if conn.runtime, err = runtime.Connect(ctx, runtimeOptions(c, base.metrics, conn.tracer, base.Clock)); err != nil {
		endTracing(conn.tracer)
		return connections{}, err
	}
	if conn.listeners = base.Listeners; conn.listeners == nil {
		if conn.listeners, err = Listen(ctx, base.Config); err != nil {
			endTracing(conn.tracer)
			return connections{}, errors.Join(err, conn.runtime.Close())
		}
	}
	conn.events = events.New(ctx, conn.heartbeats(), scheme, base.name, ptr.Deref(c.EventRecordQPS, 0), c.EventBurst)
	return conn, nil
}

// close ends the connections but for the ports, which the server closes.
func (c connections) close() error {
	c.events.Stop()
	err := c.runtime.Close()
	endTracing(c.tracer)
	return err
}

// abandon ends the connections and closes the ports, on which no server serves.
func (c connections) abandon() error {
	if c.listeners != nil {
		c.listeners.Close()
	}
	return c.close()
}

// core returns the client of pods, nil in standalone mode.
func (c connections) core() rest.Interface {
	if c.clients == nil {
		return nil
	}
	return c.clients.Core
}

// heartbeats returns the client of the Node and of events, which has no rate limit;
// nil in standalone mode.
func (c connections) heartbeats() rest.Interface {
	if c.clients == nil {
		return nil
	}
	return c.clients.Heartbeats
}

// minSyncFrequency is the shortest --sync-frequency that takes effect.
const minSyncFrequency = time.Second

func runtimeOptions(c *config.Configuration, m *metrics.Metrics, tracer tracing.TracerProvider, clock clock.Clock) runtime.Options {
	return runtime.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint,
		ImageEndpoint:   c.ImageServiceEndpoint,
		RequestTimeout:  c.RuntimeRequestTimeout.Duration,
		CheckPeriod:     max(c.SyncFrequency.Duration, minSyncFrequency),
		Record:          m.RuntimeOperation,
		Relisted:        m.Relisted,
		Tracer:          tracer,
		Clock:           clock,
	}
}
