package apiserver_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"svc.dev/svc/apiserver/options"
)

// newHost starts a standalone server with the namespace team, and returns a kubeconfig of
// its administrator.
func newHost(t *testing.T) (kubeconfig string) {
	t.Helper()
	host := startNew(t)
	if code, body := host.do(t, http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "team"}}`, false); code != http.StatusCreated {
		t.Fatalf("create a namespace of the host: %d %s", code, body)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["host"] = &clientcmdapi.Cluster{Server: host.url, InsecureSkipTLSVerify: true}
	config.AuthInfos["host"] = &clientcmdapi.AuthInfo{Token: adminToken}
	config.Contexts["host"] = &clientcmdapi.Context{Cluster: "host", AuthInfo: "host"}
	config.CurrentContext = "host"
	kubeconfig = filepath.Join(t.TempDir(), "host")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// inDomain makes options those of a server behind a host.
func inDomain(o *options.Options, domain, kubeconfig string) *options.Options {
	o.Host.GroupDomain, o.Host.Kubeconfig = domain, kubeconfig
	o.Authentication.TokenAuthFile = "" // the host knows the users
	return o
}

func TestServersOfSeveralDomainsAndOfNoneInOneProcessServeTheSameObjects(t *testing.T) {
	kubeconfig := newHost(t)
	standalone, member := newOptions(t)
	servers := map[string]*running{"": start(t, standalone)}
	for _, domain := range []string{"one.example.com", "two.example.org"} {
		o, _ := newOptions(t)
		o.Etcd.Servers = member.Endpoints()
		servers[domain] = start(t, inDomain(o, domain, kubeconfig))
	}
	root := func(domain string) string {
		if domain == "" {
			return "/api/v1"
		}
		return "/apis/core." + domain + "/v1"
	}
	apiVersion := func(domain string) string {
		return strings.TrimPrefix(strings.TrimPrefix(root(domain), "/apis/"), "/api/")
	}
	if code, body := servers[""].do(t, http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "team"}}`, false); code != http.StatusCreated {
		t.Fatalf("create a namespace: %d %s", code, body)
	}
	for from, writer := range servers {
		name := "by-" + strings.ReplaceAll(from, ".", "-") + "x"
		maps := "/namespaces/team/configmaps"
		written := `{"apiVersion": "` + apiVersion(from) + `", "kind": "ConfigMap", "metadata": {"name": "` + name + `", "ownerReferences": [
			{"apiVersion": "` + apiVersion(from) + `", "kind": "Pod", "name": "p", "uid": "1"}]}}`
		if code, body := writer.do(t, http.MethodPost, root(from)+maps, written, false); code != http.StatusCreated {
			t.Fatalf("domain %q: create: %d %s", from, code, body)
		}
		for to, reader := range servers {
			code, body := reader.get(t, root(to)+maps+"/"+name, false)
			if code != http.StatusOK || strings.Count(body, `"apiVersion":"`+apiVersion(to)+`"`) < 2 {
				t.Errorf("written in domain %q, read in %q: %d %s", from, to, code, body)
			}
			if code, _ := reader.get(t, root(from)+maps, false); from != to && code != http.StatusNotFound {
				t.Errorf("the server of domain %q answers %d in the names of %q", to, code, from)
			}
		}
	}
}
