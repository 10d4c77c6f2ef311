package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criutil "k8s.io/cri-client/pkg/util"
)

// The names of a runtime's services in errors.
const (
	runtimeService = "container runtime"
	imageService   = "image service"
)

// probe checks that both services answer, over connections that it closes:
// cri-client leaks a connection for each failed attempt.
func probe(ctx context.Context, options Options) error {
	if err := ask(ctx, options.RuntimeEndpoint, options.RequestTimeout, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}); err != nil {
		return explain(ctx, runtimeService, options.RuntimeEndpoint, options.RequestTimeout, err)
	}
	if err := ask(ctx, options.ImageEndpoint, options.RequestTimeout, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := runtimeapi.NewImageServiceClient(conn).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		return err
	}); err != nil {
		return explain(ctx, imageService, options.ImageEndpoint, options.RequestTimeout, err)
	}
	return nil
}

// ask makes one request over a connection of its own.
func ask(ctx context.Context, endpoint string, timeout time.Duration, request func(context.Context, *grpc.ClientConn) error) error {
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = request(ctx, conn)
	if closeErr := conn.Close(); err == nil {
		err = closeErr
	}
	return err
}

// explain describes in one line why the service at endpoint cannot be used, and
// what to do about it.
func explain(ctx context.Context, service, endpoint string, timeout time.Duration, err error) error {
	address, _, parseErr := criutil.GetAddressAndDialer(endpoint)
	if parseErr != nil {
		return fmt.Errorf("%s endpoint %q: %w (want unix:///path/of/the/socket)", service, endpoint, parseErr)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s at %s: %w", service, endpoint, ctx.Err())
	}
	info, statErr := os.Stat(address)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("%s at %s: there is no such socket: start the runtime, or name another endpoint", service, endpoint)
	case errors.Is(statErr, fs.ErrPermission):
		return fmt.Errorf("%s at %s: permission denied: run as a user who may use the runtime, such as root", service, endpoint)
	case statErr == nil && info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s at %s: it is not a socket: name the one of the runtime", service, endpoint)
	}
	switch code := rootCode(err); code {
	case codes.Unimplemented:
		if supportsAlpha(ctx, endpoint) {
			return fmt.Errorf("%s at %s is too old: it speaks CRI v1alpha2 and not v1: use containerd 1.6, CRI-O 1.20 or later", service, endpoint)
		}
		return fmt.Errorf("%s at %s does not speak CRI v1: enable its CRI plugin (containerd: take \"cri\" off disabled_plugins)", service, endpoint)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s at %s has not answered within %s: restart it, or give it longer with runtimeRequestTimeout (--runtime-request-timeout)", service, endpoint, timeout)
	case codes.Unavailable:
		return fmt.Errorf("%s at %s cannot be reached: is the runtime running? (%s)", service, endpoint, Message(err))
	default:
		return fmt.Errorf("%s at %s: %w", service, endpoint, err)
	}
}

// rootCode returns the gRPC code of an error, however deeply it is wrapped.
func rootCode(err error) codes.Code {
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// supportsAlpha reports whether the runtime answers CRI v1alpha2, whose messages are
// the same.
func supportsAlpha(ctx context.Context, endpoint string) bool {
	return ask(ctx, endpoint, 5*time.Second, func(ctx context.Context, conn *grpc.ClientConn) error {
		return conn.Invoke(ctx, "/runtime.v1alpha2.RuntimeService/Version", &runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{})
	}) == nil
}

// dial connects to a runtime's socket for what cri-client does not support.
func dial(endpoint string) (*grpc.ClientConn, error) {
	address, dialer, err := criutil.GetAddressAndDialer(endpoint)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dialer))
}
