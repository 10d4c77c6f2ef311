package svclet

import (
	"fmt"
	"os"

	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/credentials"
)

// credentials are the node's own for images: those of its docker
// configurations, and those that plugins give.
func (a *Agent) credentials() ([]image.Credentials, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // daemons may have none
	}
	all := []image.Credentials{credentials.NewFiles(credentials.DefaultPaths(a.RootDir, home), a.clock)}
	if a.ImageCredentialProviderConfig == "" {
		return all, nil
	}
	configured, err := credentials.ReadPluginConfig(a.ImageCredentialProviderConfig)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	plugins, err := credentials.NewPlugins(configured, a.ImageCredentialProviderBinDir, a.clock)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-bin-dir: %w", err)
	}
	a.metrics.Register(plugins.Metrics()...)
	return append(all, plugins), nil
}
