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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestWhatWillNotMendItself(t *testing.T) {
	api := &rest.Config{Host: "https://server"}
	request := func(err error) error {
		return fmt.Errorf("failed to get server groups: %w", &url.Error{Op: "Get", URL: "https://server/api", Err: err})
	}
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nobody listens":                        {request(syscall.ECONNREFUSED), ""},
		"it takes too long":                     {request(errors.New("context deadline exceeded")), ""},
		"it is not ready":                       {apierrors.NewServiceUnavailable("not yet"), ""},
		"it does not serve leases":              {apierrors.NewGenericServerResponse(404, "get", leases, "", "", 0, false), ""},
		"an unknown user":                       {apierrors.NewUnauthorized("no"), "the API server at https://server does not know this user: the certificate or token is of another cluster, or no longer valid"},
		"a user without rights":                 {apierrors.NewForbidden(leases, "manager", errors.New("no")), "the user has not the rights of system:kube-controller-manager: "},
		"another cluster's server":              {request(x509.UnknownAuthorityError{}), "the certificate of https://server is not trusted: x509: certificate signed by unknown authority; is this file of another cluster?"},
		"another machine's server":              {request(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "server"}), "the certificate of https://server is not trusted: "},
		"a server's certificate that has ended": {request(x509.CertificateInvalidError{Reason: x509.Expired}), "the certificate of https://server is not trusted: "},
		"plain HTTP":                            {request(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), "https://server does not speak TLS: tls: first record does not look like a TLS handshake"},
	} {
		got := ""
		if err := hopeless(api, test.err); err != nil {
			got = err.Error()
		}
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
