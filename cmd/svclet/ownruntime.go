package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"svc.dev/svc/svclet/agent"
	"svc.dev/svc/svclet/cgroup"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/svclet/image/load"
	"svc.dev/svc/svclet/podnetwork/plan"
)

// ownRuntime starts a containerd of the agent's own if c names no runtime, and
// sets its endpoint in c. Otherwise it returns nil.
func ownRuntime(ctx context.Context, c *agent.Config) (*containerd.Runtime, error) {
	if c.Configuration.ContainerRuntimeEndpoint != "" {
		return nil, nil
	}
	programs, err := containerd.Find(containerd.DefaultSearch())
	if err != nil {
		return nil, fmt.Errorf("%w; or name a runtime that runs already with --container-runtime-endpoint", err)
	}
	dir, err := filepath.Abs(containerdDir(c.RootDir))
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	options := containerd.Config{Dir: dir, Programs: programs, SystemdCgroups: c.Configuration.CgroupDriver == string(cgroup.Systemd), RegistryDir: containerd.DefaultRegistryDir}
	options.PodNetwork = c.PodNetwork != plan.None && c.API != nil
	options.ServiceProxy = c.ServiceProxy && c.API != nil
	options.NoHairpin = c.Configuration.HairpinMode == kubeletconfig.HairpinNone
	options.AwaitPodCIDRs = options.PodNetwork
	if c.UserNamespaces {
		options.PassableFrom = filepath.Dir(dir)
	}
	if c.Configuration.PodCIDR != "" && c.API == nil { // document 3 section 9: standalone only
		options.PodCIDRs = strings.Split(c.Configuration.PodCIDR, ",")
	}
	own, err := agent.StartContainerd(ctx, options)
	if err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx)
	for _, warning := range own.Warnings {
		logger.Info("Machine lacks a feature that pods use", "warning", warning)
	}
	logger.Info("Running a containerd for the pods of this node", "version", own.Version, "endpoint", own.Endpoint, "log", own.LogFile)
	c.Containerd, c.Configuration.ContainerRuntimeEndpoint = own, own.Endpoint
	return own, nil
}

func containerdDir(rootDir string) string { return filepath.Join(rootDir, "containerd") }

// newImage returns the command "svclet image", which svc has too.
func newImage() *cobra.Command {
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	rootDir := flags.String("root-dir", config.DefaultFlags().RootDir, "Root directory of the agent whose own containerd is meant.")
	return load.NewCommand(flags, "svclet", func(*cobra.Command) (string, error) {
		dir, err := filepath.Abs(*rootDir)
		return containerd.Config{Dir: containerdDir(dir)}.Endpoint(), err
	})
}
