// Package healthserver serves the controller manager's health checks to every
// client, and its metrics and profiles to users that the API server authorizes.
package healthserver

import (
	"errors"
	"fmt"
	"net"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"

	"svc.dev/svc/internal/connection"
	"svc.dev/svc/internal/flagfile"
	"svc.dev/svc/internal/tlsrule"
)

// Options are the flags of the server, with the names and defaults of
// kube-controller-manager, except for the address: the server listens on the
// loopback interface only.
type Options struct {
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Profiling      bool
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	o := &Options{
		SecureServing:  genericoptions.NewSecureServingOptions(),
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
		Profiling:      true,
	}
	o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	o.SecureServing.BindPort = 10257
	// Without a directory the certificate lives in memory.
	o.SecureServing.ServerCert.CertDirectory = ""
	o.SecureServing.ServerCert.PairName = "controller-manager"
	// A server that does not say how it identifies its users still lets tokens be reviewed.
	o.Authentication.TolerateInClusterLookupFailure = true
	return o
}

// AddFlags adds the flags, by subject.
func (o *Options) AddFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet("secure serving")
	o.SecureServing.AddFlags(fs)
	fs.Lookup("secure-port").Usage = "The port of health, metrics and profiles, over TLS. 0 opens none."
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "Serve /debug/pprof to those who are allowed to read it.")
	o.Authentication.AddFlags(sets.FlagSet("authentication"))
	o.Authorization.AddFlags(sets.FlagSet("authorization"))
}

// Validate returns what is wrong, one error for each flag.
func (o *Options) Validate() []error {
	errs := o.SecureServing.Validate()
	if problem := tlsrule.RefuseVersion(o.SecureServing.MinTLSVersion); problem != "" {
		errs = append(errs, errors.New("--tls-min-version: "+problem))
	}
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	return append(errs, o.validateFiles()...)
}

// validateFiles returns what is wrong with the files that flags name. The server reads them
// only once it has reached the API server.
func (o *Options) validateFiles() []error {
	pair := o.SecureServing.ServerCert.CertKey
	errs := flagfile.Pair("tls-cert-file", pair.CertFile, "tls-private-key-file", pair.KeyFile)
	for _, sni := range o.SecureServing.SNICertKeys {
		errs = append(errs, flagfile.Pair("tls-sni-cert-key", sni.CertFile, "tls-sni-cert-key", sni.KeyFile)...)
	}
	errs = append(errs, flagfile.Check("client-ca-file", o.Authentication.ClientCert.ClientCA, flagfile.Certificates)...)
	errs = append(errs, flagfile.Check("requestheader-client-ca-file", o.Authentication.RequestHeader.ClientCAFile, flagfile.Certificates)...)
	for _, kubeconfig := range []struct{ flag, file string }{
		{"authentication-kubeconfig", o.Authentication.RemoteKubeConfigFile},
		{"authorization-kubeconfig", o.Authorization.RemoteKubeConfigFile},
	} {
		if kubeconfig.file == "" {
			continue
		}
		if _, err := connection.Read(kubeconfig.file); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", kubeconfig.flag, err))
		}
	}
	return errs
}
