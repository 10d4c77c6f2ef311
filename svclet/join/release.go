package join

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// OlderRelease returns the release of the API server of a connection file ("v1.28.0") if it is
// older than own, the release of svclet, and "" otherwise. A node must not be newer than its API
// server (Kubernetes' version skew policy).
func OlderRelease(ctx context.Context, connection, own string) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", connection)
	if err != nil {
		return "", err
	}
	config.Timeout = requestTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	info, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return "", err
	}
	server, err := version.ParseSemantic(info.GitVersion)
	if err != nil {
		return "", fmt.Errorf("the version of the API server: %w", err)
	}
	if server.WithPatch(0).LessThan(version.MustParseSemantic(own).WithPatch(0)) {
		return fmt.Sprintf("v%d.%d.%d", server.Major(), server.Minor(), server.Patch()), nil
	}
	return "", nil
}
