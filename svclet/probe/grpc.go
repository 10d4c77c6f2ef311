package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// grpc calls the server's health service. Any error is a failure, as for the tool
// grpc_health_probe.
func (m *Manager) grpc(ctx context.Context, t target, action *corev1.GRPCAction, timeout time.Duration) outcome {
	address, err := t.address("", intstr.FromInt32(action.Port))
	if err != nil {
		return outcome{verdict: unknown, err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := m.connect(ctx, address, credentialsOf(action))
	if err != nil {
		return failed(fmt.Sprintf("timeout: failed to connect service %q within %v: %+v", address, timeout, err))
	}
	defer closeConn(conn)

	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: ptr.Deref(action.Service, "")})
	switch state := status.Convert(err); {
	case state.Code() == codes.Unimplemented:
		return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + state.Message())
	case state.Code() == codes.DeadlineExceeded:
		return failed(fmt.Sprintf("timeout: health rpc did not complete within %v", timeout))
	case err != nil:
		return failed(fmt.Sprintf("error: health rpc probe failed: %+v", err))
	case answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return failed(fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()))
	}
	return outcome{verdict: success, output: "service healthy"}
}

// credentialsOf returns those of a connection: without TLS unless the action's mode is TLS,
// and then without certificate verification, as for HTTPS.
func credentialsOf(action *corev1.GRPCAction) credentials.TransportCredentials {
	if ptr.Deref(action.Mode, corev1.GRPCProbeModePlaintext) == corev1.GRPCProbeModeTLS {
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	return insecure.NewCredentials()
}

// connect waits for a connection until ctx is done.
func (m *Manager) connect(ctx context.Context, address string, transport credentials.TransportCredentials) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent("kube-probe/"+m.options.Version),
		grpc.WithTransportCredentials(transport),
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return newDialer().DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return nil, err
	}
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return conn, nil
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			closeConn(conn)
			return nil, ctx.Err()
		}
	}
}

func closeConn(conn *grpc.ClientConn) {
	if err := conn.Close(); err != nil {
		klog.V(2).InfoS("Failed to close the connection of a gRPC probe", "address", conn.Target(), "err", err)
	}
}
