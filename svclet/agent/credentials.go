package agent

import (
	"fmt"
	"os"

	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/credentials"
)

// credentials returns the node's credentials for image registries: those of docker
// configuration files, and those that plugins provide.
func (a *Agent) credentials() ([]image.Credentials, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // daemons may have none
	}
	all := []image.Credentials{credentials.NewFiles(credentials.DefaultPaths(a.RootDir, home), a.Clock)}
	if a.ImageCredentialProviderConfig == "" {
		return all, nil
	}
	configured, err := credentials.ReadPluginConfig(a.ImageCredentialProviderConfig)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	plugins, err := credentials.NewPlugins(configured, a.ImageCredentialProviderBinDir, a.Clock)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-bin-dir: %w", err)
	}
	a.metrics.Register(plugins.Metrics()...)
	return append(all, plugins), nil
}
