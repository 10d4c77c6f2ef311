package agent

import (
	"context"
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/image"
	"svc.dev/svc/svclet/image/credentials"
	"svc.dev/svc/svclet/image/records"
)

// newImages makes what pulls images, and the records of who may use them.
func newImages(base common, conn connections) (*image.Manager, *records.Records, error) {
	all, err := newCredentials(base)
	if err != nil {
		return nil, nil, err
	}
	c := base.Configuration
	pulls, err := newRecords(base)
	if err != nil {
		return nil, nil, err
	}
	images := image.New(image.Options{
		Runtime: conn.runtime, Recorder: conn.events, Credentials: all, Records: pulls, Clock: base.Clock,
		MaxParallelPulls: parallelPulls(c), QPS: float32(ptr.Deref(c.RegistryPullQPS, 0)), Burst: int(c.RegistryBurst),
		MaxListed: int(ptr.Deref(c.NodeStatusMaxImages, 0)),
	})
	base.metrics.Register(images.Metrics()...)
	return images, pulls, nil
}

// newRecords makes the records of who may use the node's images.
func newRecords(base common) (*records.Records, error) {
	c := base.Configuration
	policy := records.Policy{Verification: c.ImagePullCredentialsVerificationPolicy, Allowlist: c.PreloadedImagesVerificationAllowlist}
	pulls, err := records.Open(base.RootDir, config.APIVersion, policy, base.Clock)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	return pulls, nil
}

// recordsTask finishes the records of pulls of which the agent before did not see the end.
func recordsTask(conn connections, pulls *records.Records) tasks {
	return tasks{parts: []func(context.Context){func(ctx context.Context) {
		err := pulls.Recover(ctx, func(ctx context.Context, name string) (string, error) {
			found, err := conn.runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
			return found.GetId(), err
		})
		if err != nil && ctx.Err() == nil {
			// What is left makes the agent verify credentials.
			klog.FromContext(ctx).Error(err, "Failed to finish the records of image pulls")
		}
	}}}
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
