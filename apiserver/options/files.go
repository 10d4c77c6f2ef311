package options

import (
	"cmp"
	"crypto/tls"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/util/cert"

	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/yamldoc"
	"svc.dev/svc/internal/configlines"
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
		errs = append(errs, validatePair(pair.certFlag, pair.cert, pair.keyFlag, pair.key)...)
	}
	if !slices.ContainsFunc(o.Etcd.Servers, isPlain) { // otherwise validateEtcd refuses the flags
		errs = append(errs, validatePair("etcd-certfile", o.Etcd.CertFile, "etcd-keyfile", o.Etcd.KeyFile)...)
		errs = append(errs, validateFile("etcd-cafile", o.Etcd.TrustedCAFile, certificates)...)
	}
	for _, sni := range o.SecureServing.SNICertKeys {
		errs = append(errs, validatePair("tls-sni-cert-key", sni.CertFile, "tls-sni-cert-key", sni.KeyFile)...)
	}
	a := o.Authentication
	for _, f := range []struct {
		flag, file string
		check      func(content []byte) error
	}{
		{"client-ca-file", a.ClientCAFile, certificates},
		{"requestheader-client-ca-file", a.RequestHeader.ClientCAFile, certificates},
		{"svclet-certificate-authority", o.Agents.CAFile, certificates},
		{"oidc-ca-file", a.OIDC.CAFile, certificates},
		{"token-auth-file", a.TokenAuthFile, tokens},
		{"authentication-config", a.ConfigFile, yamldoc.Check},
		{"authentication-token-webhook-config-file", a.Webhook.ConfigFile, yamldoc.Check},
		{"encryption-provider-config", o.Encryption.File, yamldoc.Check},
		{"admission-control-config-file", o.Admission.ConfigFile, func(content []byte) error {
			return cmp.Or(yamldoc.Check(content), pluginconfig.Check(o.Admission.ConfigFile, content))
		}},
		{"service-account-signing-key-file", o.ServiceAccounts.SigningKeyFile, unchecked},
	} {
		errs = append(errs, validateFile(f.flag, f.file, f.check)...)
	}
	errs = append(errs, o.validateAudit()...)
	for _, file := range o.ServiceAccounts.KeyFiles {
		errs = append(errs, validateFile("service-account-key-file", file, unchecked)...)
	}
	return errs
}

// validateAudit returns the errors of the files of the audit.
func (o *Options) validateAudit() []error {
	errs := validateFile("audit-policy-file", o.Audit.PolicyFile, auditPolicy)
	errs = append(errs, validateFile("audit-webhook-config-file", o.Audit.WebhookOptions.ConfigFile, yamldoc.Check)...)
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

// validatePair returns the errors of a certificate and its key; both are empty or none.
func validatePair(certFlag, certFile, keyFlag, keyFile string) []error {
	if (certFile == "") != (keyFile == "") {
		return []error{fmt.Errorf("--%s and --%s: set both or none", certFlag, keyFlag)}
	}
	errs := append(validateFile(certFlag, certFile, unchecked), validateFile(keyFlag, keyFile, unchecked)...)
	if certFile == "" || len(errs) > 0 {
		return errs
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return []error{fmt.Errorf("--%s and --%s: %s and %s: %w; name PEM files of a certificate and of its key", certFlag, keyFlag, certFile, keyFile, err)}
	}
	return nil
}

// validateFile returns an error unless the file of a flag can be read and its content is
// valid. An empty name is no file.
func validateFile(flag, file string, check func(content []byte) error) []error {
	if file == "" {
		return nil
	}
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", file)
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return []error{fmt.Errorf("--%s: %w; name a file that the server can read", flag, err)}
	}
	if err := check(content); err != nil {
		return []error{fmt.Errorf("--%s: %s: %w", flag, file, err)}
	}
	return nil
}

// unchecked is the check of files whose content is checked where it is used.
func unchecked([]byte) error { return nil }

// auditPolicy checks an audit policy.
func auditPolicy(content []byte) error {
	if err := yamldoc.Check(content); err != nil {
		return err
	}
	_, err := policy.LoadPolicyFromBytes(content)
	return configlines.Explain(content, err)
}

// certificates checks a PEM file of certificates.
func certificates(content []byte) error {
	if _, err := cert.ParseCertsPEM(content); err != nil {
		return fmt.Errorf("%w; name a PEM file of certificates", err)
	}
	return nil
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
