package options

import (
	"cmp"
	"crypto/x509"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/audit/policy"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/cert"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/yamldoc"
	"svc.dev/svc/internal/configlines"
	"svc.dev/svc/internal/flagfile"
)

// validateFiles returns the errors of flags that name files: one for each file, which
// names the flag, the file, the line if there is one, and the remedy.
func (o *Options) validateFiles() []error {
	serving := o.SecureServing.ServerCert.CertKey
	var errs []error
	for _, pair := range []struct{ certFlag, cert, keyFlag, key string }{
		{"tls-cert-file", serving.CertFile, "tls-private-key-file", serving.KeyFile},
		{"svclet-client-certificate", o.Agents.CertFile, "svclet-client-key", o.Agents.KeyFile},
		{"proxy-client-cert-file", o.ProxyClientCertFile, "proxy-client-key-file", o.ProxyClientKeyFile},
	} {
		errs = append(errs, flagfile.Pair(pair.certFlag, pair.cert, pair.keyFlag, pair.key)...)
	}
	if !slices.ContainsFunc(o.Etcd.Servers, isPlain) { // otherwise validateEtcd refuses the flags
		errs = append(errs, flagfile.Pair("etcd-certfile", o.Etcd.CertFile, "etcd-keyfile", o.Etcd.KeyFile)...)
		errs = append(errs, flagfile.Check("etcd-cafile", o.Etcd.TrustedCAFile, flagfile.Certificates)...)
	}
	for _, sni := range o.SecureServing.SNICertKeys {
		errs = append(errs, flagfile.Pair("tls-sni-cert-key", sni.CertFile, "tls-sni-cert-key", sni.KeyFile)...)
	}
	a := o.Authentication
	for _, f := range []struct {
		flag, file string
		check      func(content []byte) error
	}{
		{"client-ca-file", a.ClientCAFile, flagfile.Certificates},
		{"requestheader-client-ca-file", a.RequestHeader.ClientCAFile, flagfile.Certificates},
		{"svclet-certificate-authority", o.Agents.CAFile, flagfile.Certificates},
		{"oidc-ca-file", a.OIDC.CAFile, flagfile.Certificates},
		{"token-auth-file", a.TokenAuthFile, tokens},
		{"authentication-config", a.ConfigFile, yamldoc.Check},
		{"authentication-token-webhook-config-file", a.Webhook.ConfigFile, yamldoc.Check},
		{"encryption-provider-config", o.Encryption.File, yamldoc.Check},
		{"admission-control-config-file", o.Admission.ConfigFile, func(content []byte) error {
			return cmp.Or(yamldoc.Check(content), pluginconfig.Check(o.Admission.ConfigFile, content, o.Admission.Plugins.Registered(), o.admits))
		}},
		{"tracing-config-file", o.Tracing.ConfigFile, func(content []byte) error { return cmp.Or(yamldoc.Check(content), o.checkTracing()) }},
		{"service-account-signing-key-file", o.ServiceAccounts.SigningKeyFile, flagfile.Unchecked},
	} {
		errs = append(errs, flagfile.Check(f.flag, f.file, f.check)...)
	}
	errs = append(errs, o.validateAudit()...)
	for _, file := range o.ServiceAccounts.KeyFiles {
		errs = append(errs, flagfile.Check("service-account-key-file", file, flagfile.Unchecked)...)
	}
	return errs
}

// CheckAuthorities returns an error if an authority of clients' certificates is one of front
// proxies, too, and any name is that of a front proxy: every client could then send the
// headers of any user. It leaves files that cannot be read to other checks.
func (a *Authentication) CheckAuthorities() error {
	h := a.RequestHeader
	if a.ClientCAFile == "" || h.ClientCAFile == "" || len(h.AllowedNames) > 0 {
		return nil
	}
	clients, err := cert.CertsFromFile(a.ClientCAFile)
	if err != nil {
		return nil
	}
	proxies, err := cert.CertsFromFile(h.ClientCAFile)
	if err != nil || !slices.ContainsFunc(proxies, func(c *x509.Certificate) bool { return slices.ContainsFunc(clients, c.Equal) }) {
		return nil
	}
	return fmt.Errorf("--requestheader-client-ca-file: %s has a certificate that is in --client-ca-file, %s, too: every client could send the headers of any user; "+
		"set --requestheader-allowed-names, or name other authorities", h.ClientCAFile, a.ClientCAFile)
}

// admits reports whether an admission plugin is enabled.
func (o *Options) admits(plugin string) bool {
	return slices.Contains(o.Admission.EnablePlugins, plugin) ||
		!o.Admission.DefaultOffPlugins.Has(plugin) && !slices.Contains(o.Admission.DisablePlugins, plugin)
}

// checkTracing checks the content of the file of --tracing-config-file.
func (o *Options) checkTracing() error {
	c, err := genericoptions.ReadTracingConfiguration(o.Tracing.ConfigFile)
	if err != nil {
		return err
	}
	return tracingapi.ValidateTracingConfiguration(c, utilfeature.DefaultFeatureGate, nil).ToAggregate()
}

// ValidateReloaded returns the errors of the files of certificates that the server reads
// again when they change, each with the flag, the file and the remedy.
func (o *Options) ValidateReloaded() []error {
	serving := o.SecureServing.ServerCert.CertKey
	errs := flagfile.Pair("tls-cert-file", serving.CertFile, "tls-private-key-file", serving.KeyFile)
	for _, sni := range o.SecureServing.SNICertKeys {
		errs = append(errs, flagfile.Pair("tls-sni-cert-key", sni.CertFile, "tls-sni-cert-key", sni.KeyFile)...)
	}
	errs = append(errs, flagfile.Pair("proxy-client-cert-file", o.ProxyClientCertFile, "proxy-client-key-file", o.ProxyClientKeyFile)...)
	errs = append(errs, flagfile.Check("client-ca-file", o.Authentication.ClientCAFile, flagfile.Certificates)...)
	return append(errs, flagfile.Check("requestheader-client-ca-file", o.Authentication.RequestHeader.ClientCAFile, flagfile.Certificates)...)
}

// validateAudit returns the errors of the files of the audit.
func (o *Options) validateAudit() []error {
	errs := flagfile.Check("audit-policy-file", o.Audit.PolicyFile, auditPolicy)
	errs = append(errs, flagfile.Check("audit-webhook-config-file", o.Audit.WebhookOptions.ConfigFile, yamldoc.Check)...)
	if len(errs) > 0 || o.Audit.PolicyFile != "" {
		return errs
	}
	for _, backend := range []struct{ flag, value string }{
		{"audit-log-path", o.Audit.LogOptions.Path},
		{"audit-webhook-config-file", o.Audit.WebhookOptions.ConfigFile},
	} {
		if backend.value != "" {
			errs = append(errs, fmt.Errorf("--%s: has no effect without --audit-policy-file; set both", backend.flag))
		}
	}
	return errs
}

// auditPolicy checks an audit policy.
func auditPolicy(content []byte) error {
	if err := yamldoc.Check(content); err != nil {
		return err
	}
	_, err := policy.LoadPolicyFromBytes(content)
	return configlines.Explain(content, err)
}

// tokens checks the lines of a file of tokens: token, user, UID and, if there are any,
// groups.
func tokens(content []byte) error {
	const remedy = `write TOKEN,USER,UID or TOKEN,USER,UID,"GROUP,GROUP"`
	reader := csv.NewReader(strings.NewReader(string(content)))
	reader.FieldsPerRecord = -1
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w; %s", err, remedy) // it names the line
		}
		if len(record) < 3 || record[0] == "" {
			line, _ := reader.FieldPos(0)
			return fmt.Errorf("line %d: a token, a user and a UID are required; %s", line, remedy)
		}
	}
}
