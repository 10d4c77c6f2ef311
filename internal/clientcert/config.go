package clientcert

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Renewed returns the connection with a transport of its own, which reads the files of
// the client certificate and of the authorities again when they change. A connection
// without a client certificate in files is returned as it is.
func Renewed(api *rest.Config) (*rest.Config, error) {
	if api.CertFile == "" || len(api.CertData) > 0 || api.Transport != nil {
		return api, nil
	}
	base, err := baseOf(api)
	if err != nil {
		return nil, err
	}
	pair, err := Open(api.CertFile, api.KeyFile)
	if err != nil {
		return nil, err
	}
	transport := New(base, pair.Current)
	if api.CAFile != "" && len(api.CAData) == 0 {
		authorities, err := openAuthorities(api.CAFile)
		if err != nil {
			return nil, err
		}
		transport.authorities = authorities.Current
	}
	api = rest.CopyConfig(api)
	if !strings.Contains(api.Host, "://") {
		api.Host = "https://" + api.Host // what client-go takes it for, because of the certificate
	}
	api.TLSClientConfig, api.Dial, api.Proxy, api.Transport = rest.TLSClientConfig{}, nil, nil, transport
	return api, nil
}

// baseOf returns a transport as client-go makes it, without a client certificate.
func baseOf(api *rest.Config) (*http.Transport, error) {
	config, err := rest.TLSConfigFor(api)
	if err != nil {
		return nil, fmt.Errorf("connection to the API server: %w", err)
	}
	config.Certificates, config.GetClientCertificate = nil, nil
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: config, MaxIdleConnsPerHost: 25,
		IdleConnTimeout: 90 * time.Second, DisableCompression: api.DisableCompression,
	}
	if api.Dial != nil {
		base.DialContext = api.Dial
	}
	if api.Proxy != nil {
		base.Proxy = api.Proxy
	}
	return base, nil
}
