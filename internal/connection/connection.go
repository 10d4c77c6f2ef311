// Package connection reads the files that say how to reach an API server, and as whom
// (kubeconfig format), and says what is wrong with one.
package connection

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Load returns the content of a file that has a current context. Its errors begin with the
// name of the file; callers add the flag.
func Load(file string) (*clientcmdapi.Config, error) {
	content, err := clientcmd.LoadFromFile(file)
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return nil, fmt.Errorf("%s: %w: name a kubeconfig that can be read", file, path.Err)
	case err != nil:
		reason, _, _ := strings.Cut(err.Error(), "; json parse error") // which has Go's name of a type
		return nil, fmt.Errorf("%s: it is not a kubeconfig: %s", file, reason)
	case len(content.Clusters) == 0:
		return nil, fmt.Errorf("%s: it does not say which API server to use: add a cluster, or name another file", file)
	case content.CurrentContext == "":
		return nil, fmt.Errorf("%s: it has no current-context: name one of its contexts there", file)
	case content.Contexts[content.CurrentContext] == nil:
		return nil, fmt.Errorf("%s: it has no context %q, which is its current-context: name one of its contexts there", file, content.CurrentContext)
	}
	return content, nil
}

// Read returns how a file reaches the API server. Its errors are as those of Load.
func Read(file string) (*rest.Config, error) {
	if _, err := Load(file); err != nil {
		return nil, err
	}
	api, err := clientcmd.BuildConfigFromFlags("", file)
	if err == nil {
		_, err = rest.TLSConfigFor(api) // as every client does
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: correct the file", file, err)
	}
	return api, nil
}
