package hostcerts

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the flags of the certificates. The zero value keeps none.
type Options struct {
	// ServingSecret is the Secret of the serving certificate, as NAMESPACE/NAME.
	ServingSecret string
	// ServingService is the Service, in the namespace of ServingSecret, that the
	// certificate is for and that the APIServices name.
	ServingService string
	// EtcdSecret is the Secret of etcd's certificates, as NAMESPACE/NAME.
	EtcdSecret string
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ServingSecret, "serving-secret", o.ServingSecret,
		"With --group-domain, the Secret of the host (NAMESPACE/NAME) that holds the serving certificate and its authority. "+
			"The server makes it if it does not exist, renews it, and writes the authority into the APIServices of --serving-service. Instead of --tls-cert-file.")
	fs.StringVar(&o.ServingService, "serving-service", o.ServingService,
		"The Service in front of the servers, in the namespace of --serving-secret.")
	fs.StringVar(&o.EtcdSecret, "etcd-secret", o.EtcdSecret,
		"With --group-domain, the Secret of the host (NAMESPACE/NAME) that holds the certificates of etcd's servers and of their client, and the authority of both. "+
			"The server makes it if it does not exist, for the hosts of --etcd-servers, and renews it. Instead of --etcd-cafile, --etcd-certfile and --etcd-keyfile.")
}

// Enabled reports whether there are certificates to keep.
func (o *Options) Enabled() bool { return o.ServingSecret != "" || o.EtcdSecret != "" }

// Others are the other flags that the certificates depend on.
type Others struct {
	// GroupDomain is that of --group-domain.
	GroupDomain string
	// ServingFiles and EtcdFiles are whether flags name files of certificates.
	ServingFiles, EtcdFiles bool
	// EtcdServers are the URLs of etcd.
	EtcdServers []string
}

// Validate returns the errors of the flags.
func (o *Options) Validate(others Others) []error {
	var errs []error
	for _, secret := range []struct{ flag, name string }{{"serving-secret", o.ServingSecret}, {"etcd-secret", o.EtcdSecret}} {
		if secret.name == "" {
			continue
		}
		if others.GroupDomain == "" {
			errs = append(errs, fmt.Errorf("--%s: has no effect without --group-domain; set both", secret.flag))
		}
		if _, err := parseName(secret.name); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", secret.flag, err))
		}
	}
	if (o.ServingSecret == "") != (o.ServingService == "") {
		errs = append(errs, errors.New("--serving-secret and --serving-service: set both or none"))
	}
	if o.ServingService != "" && len(validation.IsDNS1035Label(o.ServingService)) > 0 {
		errs = append(errs, fmt.Errorf("--serving-service: invalid name of a Service %q: %s", o.ServingService, validation.IsDNS1035Label(o.ServingService)[0]))
	}
	if o.ServingSecret != "" && others.ServingFiles {
		errs = append(errs, errors.New("--serving-secret: excludes --tls-cert-file and --tls-private-key-file; leave it out to use files"))
	}
	if o.EtcdSecret == "" {
		return errs
	}
	if others.EtcdFiles {
		errs = append(errs, errors.New("--etcd-secret: excludes --etcd-cafile, --etcd-certfile and --etcd-keyfile; leave it out to use files"))
	}
	if o.EtcdSecret == o.ServingSecret {
		errs = append(errs, errors.New("--etcd-secret: must not be --serving-secret: an authority of servers' names must not be one of etcd's clients"))
	}
	for _, server := range others.EtcdServers {
		if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Hostname() == "" {
			errs = append(errs, fmt.Errorf("--etcd-servers: %q: must be an https URL with --etcd-secret", server))
		}
	}
	return errs
}

func parseName(value string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("invalid name of a Secret %q: must be NAMESPACE/NAME", value)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// servingName is the name of the serving certificate in its Secret: as in Secrets of
// type kubernetes.io/tls.
const servingName = "tls"

// servingBundle is the Secret of the serving certificate of a Service.
func servingBundle(service types.NamespacedName) bundle {
	name := service.Name + "." + service.Namespace + ".svc"
	return bundle{authority: name + " authority", leaves: []leaf{{
		name: servingName, commonName: name, hosts: []string{name, "localhost", "127.0.0.1"},
		usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}}}
}

const (
	etcdServerName = "server"
	etcdClientName = "client"
)

// etcdBundle is the Secret of the certificates of etcd's members, and of their client.
// The client's has no host names, because etcd would compare them with the client's
// address; members use it, too, when they connect with each other.
func etcdBundle(servers []string) (bundle, error) {
	hosts := []string{"localhost", "127.0.0.1"}
	for _, server := range servers {
		u, err := url.Parse(server)
		if err != nil {
			return bundle{}, fmt.Errorf("--etcd-servers: %w", err)
		}
		hosts = append(hosts, u.Hostname())
	}
	slices.Sort(hosts)
	return bundle{authority: "svc etcd authority", leaves: []leaf{
		{
			name: etcdServerName, commonName: "svc-etcd", hosts: slices.Compact(hosts),
			usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		{name: etcdClientName, commonName: "svc-etcd-client", usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	}}, nil
}
