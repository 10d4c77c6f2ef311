package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Options are those of [Connect].
type Options struct {
	// RuntimeEndpoint is the runtime's socket ("unix:///run/containerd/containerd.sock").
	RuntimeEndpoint string
	// ImageEndpoint is the image service's; the runtime's if it is empty.
	ImageEndpoint string
	// RequestTimeout bounds each request but pulls and streams (flag
	// --runtime-request-timeout). Stopping a container may take its grace
	// period longer, creating a sandbox twice as long. The default is 2 minutes.
	RequestTimeout time.Duration

	// Sources are where [Client.Watch] may learn what changes, in order of
	// preference. The default is all of them.
	Sources []Source
	// PollPeriod is that of looking for changes where nobody tells them: the
	// source is [Relist], or a stream of events is broken. The default is 1s.
	PollPeriod time.Duration
	// CheckPeriod is that of looking for changes that events have not told.
	// The default is 90s.
	CheckPeriod time.Duration

	// Record, if set, is told of each request: its name is the label
	// operation_type of kubelet_runtime_operations_total and its sisters.
	Record func(operation string, took time.Duration, err error)
	// Clock is the system's if it is nil.
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
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// Client is a connection to a container runtime. It connects anew by itself
// when the runtime has been away. Its methods may be called side by side.
type Client struct {
	options Options
	runtime criapi.RuntimeService
	images  criapi.ImageManagerService
	// name is the runtime's ("containerd"): the scheme of container ids.
	name, version string

	mu     sync.Mutex
	health Health
	// pods and owners are what is remembered between observations; see entry.
	pods     map[types.UID]*entry
	owners   map[string]types.UID
	sequence uint64
	seed     maphash.Seed
}

// Connect connects to the runtime and its image service, and makes sure that
// they answer and speak CRI v1. Its errors are one line, and say what to do.
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
		WithTracerProvider(nil).
		Build(quiet(ctx))
	if err != nil {
		return nil, explain(ctx, runtimeService, options.RuntimeEndpoint, options.RequestTimeout, err)
	}
	c.runtime = runtime
	c.images, err = cri.NewRemoteImageServiceBuilder().
		WithEndpoint(options.ImageEndpoint).
		WithConnectionTimeout(options.RequestTimeout).
		WithTracerProvider(nil).
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

// Close closes the connection. Requests that are still running fail: end a
// [Client.Watch] before.
func (c *Client) Close() error {
	ctx := quiet(context.Background())
	return errors.Join(c.runtime.Close(ctx), c.images.Close(ctx))
}

// Name is the runtime's own: "containerd", "cri-o". It is the scheme of the
// container ids of the API.
func (c *Client) Name() string { return c.name }

// CRI is the runtime as cri-client's reader of logs wants it.
func (c *Client) CRI() criapi.RuntimeService { return c.runtime }

// Health says whether the runtime can be reached.
type Health struct {
	// LastContact is when the runtime last answered, whatever it answered.
	LastContact time.Time
	// Err is why the last request got no answer; nil if it got one.
	Err error
}

// Health tells what the last requests have found. It asks nobody.
func (c *Client) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

// Error is a request that has failed.
type Error struct {
	// What says what was to be done, and on which object.
	What string
	// Err is the runtime's answer, a gRPC status.
	Err error
}

func (e *Error) Error() string { return e.What + ": " + e.Err.Error() }

// Unwrap gives the runtime's own error.
func (e *Error) Unwrap() error { return e.Err }

// Message is what the runtime says about the failure, without gRPC's framing
// and without what this package adds: the text of events and statuses.
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

// IsNotFound says whether the runtime knows nothing of the object.
func IsNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// IsTimeout says whether a command or a request took too long.
func IsTimeout(err error) bool {
	return errors.Is(err, cri.ErrCommandTimedOut) || errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.DeadlineExceeded
}

// IsAway says whether the runtime could not be reached at all.
func IsAway(err error) bool { return status.Code(err) == codes.Unavailable }

// IsUnimplemented says whether the runtime does not know the request.
func IsUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// do makes one request, records it, and says what failed.
func (c *Client) do(ctx context.Context, operation, what string, request func(ctx context.Context) error) error {
	err := c.plain(ctx, operation, request)
	if err != nil {
		return &Error{What: what, Err: err}
	}
	return nil
}

// plain makes one request and records it, but leaves its error as it is.
func (c *Client) plain(ctx context.Context, operation string, request func(ctx context.Context) error) error {
	start := c.options.Clock.Now()
	err := request(quiet(ctx))
	end := c.options.Clock.Now()
	c.options.Record(operation, end.Sub(start), err)
	c.contact(ctx, end, err)
	return err
}

// contact notes whether the runtime has answered. A request that its caller
// gave up says nothing about the runtime.
func (c *Client) contact(ctx context.Context, now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
	case IsAway(err) || status.Code(err) == codes.DeadlineExceeded:
		c.health.Err = err
	default:
		c.health = Health{LastContact: now}
	}
}

// quiet keeps cri-client from logging what it returns.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
