package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"svc.dev/svc/internal/connection"
	"svc.dev/svc/internal/datadir"
)

// administrator is how a command of an administrator reaches a cluster: the one that
// --svcconfig or KUBECONFIG names or, without them, the svc up of this user.
type administrator struct {
	cmd *cobra.Command
	// flag is the name by which the user gave the file, file its value, empty if none.
	flag, file string
}

// connectionFlag adds the flag --svcconfig, which may also be written --kubeconfig and
// by other names.
func connectionFlag(cmd *cobra.Command, also ...string) *administrator {
	c := &administrator{cmd: cmd, flag: "--svcconfig"}
	cmd.Flags().SetNormalizeFunc(func(fs *pflag.FlagSet, name string) pflag.NormalizedName {
		if slices.Contains(also, name) {
			c.flag, name = "--"+name, "svcconfig"
		}
		return kubernetesNames(fs, name)
	})
	cmd.Flags().StringVar(&c.file, "svcconfig", "",
		"File that says how to reach the API server, and as whom (kubeconfig format). The default is KUBECONFIG or, without it, that of this user's svc up.")
	return c
}

// named returns the one connection file, empty if KUBECONFIG names several or none.
func (c *administrator) named() (subject, file string, err error) {
	if c.file != "" {
		return c.flag, c.file, nil
	}
	user := datadir.CurrentUser()
	file, exists := kubeconfigFor(user, nil)
	if file == "" {
		if noDefault(user, nil) {
			return "", "", fmt.Errorf("%s: there is no default without HOME: name a cluster by it or KUBECONFIG", c.flag)
		}
		if list := filepath.SplitList(user.Env(clientcmd.RecommendedConfigPathEnvVar)); len(list) == 1 {
			file = list[0]
		}
		return clientcmd.RecommendedConfigPathEnvVar, file, nil
	}
	if !exists {
		return "", "", fmt.Errorf("%s does not exist: start \"svc up\", or name a cluster by %s or KUBECONFIG%s", file, c.flag, sudoHint(datadir.Dir(filepath.Dir(file))))
	}
	return c.flag, file, nil
}

// config reads the connection file.
func (c *administrator) config() (*rest.Config, error) {
	subject, file, err := c.named()
	if err != nil {
		return nil, err
	}
	var api *rest.Config
	if file != "" {
		api, err = connection.Read(file)
	} else {
		api, err = several().ClientConfig()
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", subject, err), c.cmd}
	}
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return explained{next, c.flag} })
	return api, nil
}

// explained adds to the error of a request that no server has accepted what may help.
type explained struct {
	next http.RoundTripper
	flag string
}

func (e explained) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(r)
	if utilnet.IsConnectionRefused(err) {
		err = fmt.Errorf("%w: start \"svc up\", or name another cluster by %s or KUBECONFIG", err, e.flag)
	}
	return response, err
}

// WrappedRoundTripper returns the next one, which has the TLS configuration of upgraded connections.
func (e explained) WrappedRoundTripper() http.RoundTripper { return e.next }

// about returns err with the names of the flag or variable and of the file.
func (c *administrator) about(err error) error {
	subject, file, missing := c.named()
	if missing != nil || file == "" {
		return fmt.Errorf("%s: %w", cmp.Or(subject, c.flag), err)
	}
	return fmt.Errorf("%s: %s: %w", subject, file, err)
}

// content returns the connection file, reduced to the current context, with the contents
// of the certificates and keys it names. The paths of other files are absolute.
func (c *administrator) content() (*clientcmdapi.Config, error) {
	subject, file, err := c.named()
	if err != nil {
		return nil, err
	}
	var content *clientcmdapi.Config
	if file != "" {
		content, err = connection.Load(file)
	} else {
		var raw clientcmdapi.Config
		raw, err = several().RawConfig()
		content = &raw
	}
	if err == nil {
		if err = reduce(content); err != nil && file != "" {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", subject, err), c.cmd}
	}
	return content, nil
}

// reduce leaves the current context only, and replaces paths by the contents of the files. It
// returns an error if the context leads to no server.
func reduce(content *clientcmdapi.Config) error {
	if err := clientcmd.ResolveLocalPaths(content); err != nil {
		return err
	}
	if err := clientcmdapi.MinifyConfig(content); err != nil {
		return err
	}
	current := content.CurrentContext
	if cluster := content.Clusters[content.Contexts[current].Cluster]; cluster == nil || cluster.Server == "" {
		return fmt.Errorf("the context %q names no cluster with a server: add one, or choose another context", current)
	}
	return clientcmdapi.FlattenConfig(content)
}

// several reads the files of KUBECONFIG as kubectl does.
func several() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.DefaultClientConfig = nil
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// client returns a client of the API server.
func (c *administrator) client() (kubernetes.Interface, *rest.Config, error) {
	api, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	api.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, nil, c.about(err)
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
