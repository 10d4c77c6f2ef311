package controllers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestPermanentErrorsSayWhatToCorrect(t *testing.T) {
	api := &rest.Config{Host: "https://server"}
	request := func(err error) error {
		return fmt.Errorf("failed to get server groups: %w", &url.Error{Op: "Get", URL: "https://server/api", Err: err})
	}
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"connection refused":                {request(syscall.ECONNREFUSED), ""},
		"timeout":                           {request(errors.New("context deadline exceeded")), ""},
		"server not ready":                  {apierrors.NewServiceUnavailable("not yet"), ""},
		"server without leases":             {apierrors.NewGenericServerResponse(404, "get", leases, "", "", 0, false), ""},
		"unknown user":                      {apierrors.NewUnauthorized("no"), "the API server at https://server rejects the credentials: the certificate or token belongs to another cluster, or is no longer valid"},
		"user without permissions":          {apierrors.NewForbidden(leases, "manager", errors.New("no")), "the user lacks the permissions of system:svc-controller-manager: "},
		"another cluster's server":          {request(x509.UnknownAuthorityError{}), "the certificate of https://server is not trusted: x509: certificate signed by unknown authority; check that the file belongs to this cluster"},
		"another machine's server":          {request(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "server"}), "the certificate of https://server is not trusted: "},
		"expired certificate of the server": {request(x509.CertificateInvalidError{Reason: x509.Expired}), "the certificate of https://server is not trusted: "},
		"plain HTTP":                        {request(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), "https://server does not speak TLS: tls: first record does not look like a TLS handshake"},
	} {
		got := ""
		if err := permanent(api, test.err, time.Now()); err != nil {
			got = err.Error()
		}
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
