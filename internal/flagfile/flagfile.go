// Package flagfile checks the files that flags name. Its errors have the flag, the file and
// the remedy.
package flagfile

import (
	"crypto/tls"
	"fmt"
	"os"

	"k8s.io/client-go/util/cert"
)

// Pair returns the errors of a certificate and its key; both are empty or none.
func Pair(certFlag, certFile, keyFlag, keyFile string) []error {
	if (certFile == "") != (keyFile == "") {
		return []error{fmt.Errorf("--%s and --%s: set both or none", certFlag, keyFlag)}
	}
	errs := append(Check(certFlag, certFile, Unchecked), Check(keyFlag, keyFile, Unchecked)...)
	if certFile == "" || len(errs) > 0 {
		return errs
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return []error{fmt.Errorf("--%s and --%s: %s and %s: %w; name PEM files of a certificate and of its key", certFlag, keyFlag, certFile, keyFile, err)}
	}
	return nil
}

// Check returns an error unless the file of a flag can be read and its content is
// valid. An empty name is no file.
func Check(flag, file string, check func(content []byte) error) []error {
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

// Unchecked is the check of files whose content is checked where it is used.
func Unchecked([]byte) error { return nil }

// Certificates checks a PEM file of certificates.
func Certificates(content []byte) error {
	if _, err := cert.ParseCertsPEM(content); err != nil {
		return fmt.Errorf("%w; name a PEM file of certificates", err)
	}
	return nil
}
