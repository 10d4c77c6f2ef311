package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"svc.dev/svc/internal/datadir"
)

// connection is how a command of an administrator reaches a cluster: the one that
// --svcconfig or KUBECONFIG names or, without them, the svc up of this user.
type connection struct {
	cmd  *cobra.Command
	file string
}

// connectionFlag adds the flag --svcconfig, which may also be written --kubeconfig.
func connectionFlag(cmd *cobra.Command) *connection {
	c := &connection{cmd: cmd}
	cmd.Flags().SetNormalizeFunc(kubernetesNames)
	cmd.Flags().StringVar(&c.file, "svcconfig", "",
		"File that says how to reach the API server, and as whom (kubeconfig format). The default is KUBECONFIG or, without it, that of this user's svc up.")
	return c
}

// loader returns what reads the connection file.
func (c *connection) loader() (clientcmd.ClientConfig, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.DefaultClientConfig = nil
	rules.ExplicitPath = c.file
	if c.file == "" {
		user := datadir.CurrentUser()
		if file, exists := kubeconfigFor(user, nil); file != "" {
			if !exists {
				return nil, fmt.Errorf("%s does not exist: start \"svc up\", or name a cluster by --svcconfig or KUBECONFIG", file)
			}
			rules.ExplicitPath = file
		}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}), nil
}

// config reads the connection file.
func (c *connection) config() (*rest.Config, error) {
	loader, err := c.loader()
	if err != nil {
		return nil, err
	}
	api, err := loader.ClientConfig()
	if err != nil {
		return nil, usageError{fmt.Errorf("--svcconfig: %w", err), c.cmd}
	}
	return api, nil
}

// client returns a client of the API server.
func (c *connection) client() (kubernetes.Interface, *rest.Config, error) {
	api, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	api.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, nil, fmt.Errorf("--svcconfig: %w", err)
	}
	return client, api, nil
}

// kubeconfigOf returns a kubeconfig of a user of the cluster that api reaches.
func kubeconfigOf(api *rest.Config, name string, user *clientcmdapi.AuthInfo) ([]byte, error) {
	if err := rest.LoadTLSFiles(api); err != nil {
		return nil, err
	}
	if api.Insecure {
		return nil, errors.New("--svcconfig: it does not verify the API server, and a kubeconfig that did the same would give the user's credentials to any server; name one with an authority")
	}
	const cluster = "svc"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: api.Host, CertificateAuthorityData: api.CAData, TLSServerName: api.ServerName}
	config.AuthInfos[name] = user
	config.Contexts[name+"@"+cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	config.CurrentContext = name + "@" + cluster
	return clientcmd.Write(*config)
}
