package agent

import (
	"fmt"
	"os"

	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/credentials"
)

// newImages makes what pulls images.
func newImages(base common, conn connections) (*image.Manager, error) {
	all, err := newCredentials(base)
	if err != nil {
		return nil, err
	}
	c := base.Configuration
	images := image.New(image.Options{
		Runtime: conn.runtime, Recorder: conn.events, Credentials: all, Clock: base.Clock,
		MaxParallelPulls: parallelPulls(c), QPS: float32(ptr.Deref(c.RegistryPullQPS, 0)), Burst: int(c.RegistryBurst),
		MaxListed: int(ptr.Deref(c.NodeStatusMaxImages, 0)),
	})
	base.metrics.Register(images.Metrics()...)
	return images, nil
}

// parallelPulls returns how many images are pulled at once; 0 means any number.
func parallelPulls(c *config.Configuration) int {
	if ptr.Deref(c.SerializeImagePulls, true) {
		return 1
	}
	return int(ptr.Deref(c.MaxParallelImagePulls, 0))
}

// newCredentials makes the node's credentials for image registries: those of docker
// configuration files, and those that plugins provide.
func newCredentials(base common) ([]image.Credentials, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // daemons may have none
	}
	all := []image.Credentials{credentials.NewFiles(credentials.DefaultPaths(base.RootDir, home), base.Clock)}
	if base.ImageCredentialProviderConfig == "" {
		return all, nil
	}
	configured, err := credentials.ReadPluginConfig(base.ImageCredentialProviderConfig)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	plugins, err := credentials.NewPlugins(configured, base.ImageCredentialProviderBinDir, base.Clock)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-bin-dir: %w", err)
	}
	base.metrics.Register(plugins.Metrics()...)
	return append(all, plugins), nil
}
