package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options are the options of [Connect].
type Options struct {
	// RuntimeEndpoint is the runtime's socket ("unix:///run/containerd/containerd.sock").
	RuntimeEndpoint string
	// ImageEndpoint is the image service's socket, by default RuntimeEndpoint.
	ImageEndpoint string
	// RequestTimeout bounds each request except pulls and streams (flag
	// --runtime-request-timeout). Stopping a container may take longer by its grace
	// period, and creating a sandbox twice as long. The default is 2 minutes.
	RequestTimeout time.Duration

	// Sources are the event sources of [Client.Watch], in order of preference. The
	// default is all of them.
	Sources []Source
	// PollPeriod is the relist period while no events arrive: the source is [Relist],
	// or the event stream is broken. The default is 1s.
	PollPeriod time.Duration
	// CheckPeriod is the relist period while events arrive, to find changes without an
	// event. The default is 90s.
	CheckPeriod time.Duration

	// Record, if set, is called after each request. operation is the label
	// operation_type of kubelet_runtime_operations_total and the related metrics.
	Record func(operation string, took time.Duration, err error)
	// Relisted, if set, is called after each relist: how long it took, and the time between its
	// start and that of the one before, zero for the first.
	Relisted func(took, interval time.Duration)
	// Tracer records spans of requests; nil records none.
	Tracer trace.TracerProvider
	// Clock is the system clock by default.
	Clock clock.Clock
}

func (o Options) withDefaults() Options {
	if o.ImageEndpoint == "" {
		o.ImageEndpoint = o.RuntimeEndpoint
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 2 * time.Minute
	}
	if len(o.Sources) == 0 {
		o.Sources = []Source{ContainerEvents, ContainerdEvents, Relist}
	}
	if o.PollPeriod == 0 {
		o.PollPeriod = time.Second
	}
	if o.CheckPeriod == 0 {
		o.CheckPeriod = 90 * time.Second
	}
	if o.Record == nil {
		o.Record = func(string, time.Duration, error) {}
	}
	if o.Relisted == nil {
		o.Relisted = func(time.Duration, time.Duration) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Client is a connection to a container runtime. It reconnects by itself. Its
// methods are safe for concurrent use.
type Client struct {
	options Options
	runtime criapi.RuntimeService
	images  criapi.ImageManagerService
	// name is the runtime's name ("containerd"), which is the scheme of container IDs.
	name, version string

	mu     sync.Mutex
	health Health
	// pods and owners are the cache of observations; see entry.
	pods     map[types.UID]*entry
	owners   map[string]types.UID
	sequence uint64
	seed     maphash.Seed
}

// Connect connects to the runtime and its image service, and checks that they
// answer and support CRI v1. Its errors are one line with the remedy.
func Connect(ctx context.Context, options Options) (*Client, error) {
	options = options.withDefaults()
	if options.RuntimeEndpoint == "" {
		return nil, errors.New("no container runtime endpoint is given")
	}
	if options.RequestTimeout < 0 {
		return nil, fmt.Errorf("the runtime request timeout %s is negative", options.RequestTimeout)
	}
	if err := probe(ctx, options); err != nil {
		return nil, err
	}
	c := &Client{options: options, pods: map[types.UID]*entry{}, owners: map[string]types.UID{}, seed: maphash.MakeSeed()}
	runtime, err := cri.NewRemoteRuntimeServiceBuilder().
		WithEndpoint(options.RuntimeEndpoint).
		WithConnectionTimeout(options.RequestTimeout).
		WithTracerProvider(options.Tracer).
		Build(quiet(ctx))
	if err != nil {
		return nil, explain(ctx, runtimeService, options.RuntimeEndpoint, options.RequestTimeout, err)
	}
	c.runtime = runtime
	c.images, err = cri.NewRemoteImageServiceBuilder().
		WithEndpoint(options.ImageEndpoint).
		WithConnectionTimeout(options.RequestTimeout).
		WithTracerProvider(options.Tracer).
		Build(quiet(ctx))
	if err != nil {
		err = explain(ctx, imageService, options.ImageEndpoint, options.RequestTimeout, err)
		return nil, errors.Join(err, runtime.Close(quiet(ctx)))
	}
	version, err := c.Version(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.name, c.version = version.RuntimeName, version.RuntimeVersion
	return c, nil
}

// Close closes the connection. Requests in flight fail, so stop [Client.Watch]
// first.
func (c *Client) Close() error {
	ctx := quiet(context.Background())
	return errors.Join(c.runtime.Close(ctx), c.images.Close(ctx))
}

// Name returns the runtime's name ("containerd", "cri-o"), which is the scheme of
// container IDs in the API.
func (c *Client) Name() string { return c.name }

// CRI returns the runtime as cri-client's log reader needs it.
func (c *Client) CRI() criapi.RuntimeService { return c.runtime }

// Health describes whether the runtime can be reached.
type Health struct {
	// LastContact is when the runtime last answered a request, successfully or not.
	LastContact time.Time
	// Err is why the last request got no answer, or nil.
	Err error
}

// Health returns the outcome of the last requests. It makes none of its own.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

// Error is a request that failed.
type Error struct {
	// What is the operation and its object.
	What string
	// Err is the runtime's gRPC status.
	Err error
}

// Error returns what failed, and the runtime's answer.
func (e *Error) Error() string { return e.What + ": " + e.Err.Error() }

// Unwrap returns the runtime's error.
func (e *Error) Unwrap() error { return e.Err }

// Message returns the runtime's own description of the failure, without what gRPC
// and this package add. It is the text of events and statuses.
func Message(err error) string {
	var framed interface{ GRPCStatus() *status.Status }
	if errors.As(err, &framed) {
		return framed.GRPCStatus().Message()
	}
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// IsNotFound reports whether the runtime does not have the object.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsTimeout reports whether a command or a request exceeded its timeout.
func IsTimeout(err error) bool {
	return errors.Is(err, cri.ErrCommandTimedOut) || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded
}

// IsUnavailable reports whether the runtime could not be reached.
func IsUnavailable(err error) bool { return status.Code(err) == codes.Unavailable }

// IsUnimplemented reports whether the runtime does not implement the request.
func IsUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// do makes a request, records it, and adds the operation and its object to the
// error.
func (c *Client) do(ctx context.Context, operation, what string, request func(ctx context.Context) error) error {
	err := c.plain(ctx, operation, request)
	if err != nil {
		return &Error{What: what, Err: err}
	}
	return nil
}

// plain makes a request and records it, and returns the error unchanged.
func (c *Client) plain(ctx context.Context, operation string, request func(ctx context.Context) error) error {
	start := c.options.Clock.Now()
	err := request(quiet(ctx))
	end := c.options.Clock.Now()
	c.options.Record(operation, end.Sub(start), err)
	c.contact(ctx, end, err)
	return err
}

// contact records whether the runtime has answered. A request that the caller
// cancelled does not show whether the runtime answers.
func (c *Client) contact(ctx context.Context, now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
	case IsUnavailable(err) || status.Code(err) == codes.DeadlineExceeded:
		c.health.Err = err
	default:
		c.health = Health{LastContact: now}
	}
}

// quiet discards cri-client's logs: it logs what it also returns.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
