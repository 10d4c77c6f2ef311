package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/jointoken"
)

// Discovery is how a machine learns the authority of a cluster, given a bootstrap
// token and the pins of the authority's public key.
type Discovery struct {
	// Server is the API server's URL.
	Server string
	// TokenID and TokenKey are the parts of the token, which signs the cluster's
	// information.
	TokenID, TokenKey string
	// Pins are the accepted public keys of the authority (sha256:HEX).
	Pins  []string
	Clock clock.Clock
	// Retrying, if not nil, is called with the error of an attempt that will be repeated, unless it
	// is that of the attempt before.
	Retrying func(err error, limit time.Duration)
}

const (
	// discoveryTimeout is how long the API server may take to answer, and the token's
	// signature to appear: kubeadm's default is 5 minutes.
	discoveryTimeout = time.Minute
	discoveryRetry   = time.Second
	requestTimeout   = 10 * time.Second
	// maxInfo bounds the size of the information, in bytes. etcd stores no larger
	// objects.
	maxInfo = 2 << 20
)

// errDiffers is the error of a cluster that is not the one of the token and the pins.
var errDiffers = errors.New("this is not the cluster of the token and of --ca-cert-hash")

// Authority returns the certificates of the cluster's authority, in PEM. It retries
// until the API server answers and the token has signed the information.
func (d Discovery) Authority(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := d.Clock.After(discoveryTimeout)
	told := ""
	for {
		ca, err := d.discover(ctx)
		if err == nil || errors.Is(err, errDiffers) {
			return ca, err
		}
		if d.Retrying != nil && err.Error() != told {
			told = err.Error()
			d.Retrying(err, discoveryTimeout)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit:
			return nil, fmt.Errorf("%w; tried for %s", err, discoveryTimeout)
		case <-d.Clock.After(discoveryRetry):
		}
	}
}

// discover reads the information twice: first from a server that is not verified, and
// then, with the authority in it, from the one that the authority vouches for.
func (d Discovery) discover(ctx context.Context) ([]byte, error) {
	// The signature and the pin verify the answer.
	first, err := d.read(ctx, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	ca, err := d.verify(first)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	second, err := d.read(ctx, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	if first[api.KubeConfigKey] != second[api.KubeConfigKey] {
		return nil, fmt.Errorf("%w: the information of the verified server differs", errDiffers)
	}
	return ca, nil
}

// read returns the data of the config map cluster-info, which everyone may read.
func (d Discovery) read(ctx context.Context, config *tls.Config) (map[string]string, error) {
	transport := &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	url := strings.TrimSuffix(d.Server, "/") + "/api/v1/namespaces/kube-public/configmaps/" + api.ConfigMapClusterInfo
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's information: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's information: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the cluster's information: %s answers %s: create the token with 'svc token create --print-join-command'", d.Server, resp.Status)
	}
	var info corev1.ConfigMap
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("read the cluster's information: %w", err)
	}
	return info.Data, nil
}

// verify returns the authority in the cluster's information, if the token has signed
// it and the authority has one of the pins.
func (d Discovery) verify(info map[string]string) ([]byte, error) {
	signature := info[api.JWSSignatureKeyPrefix+d.TokenID]
	if signature == "" {
		return nil, fmt.Errorf("the token %s has not signed the cluster's information: it does not exist, has expired, or its usages do not include signing", d.TokenID)
	}
	if !jointoken.Signed(info[api.KubeConfigKey], signature, d.TokenID, d.TokenKey) {
		return nil, fmt.Errorf("%w: the signature of its information is not the token's", errDiffers)
	}
	config, err := clientcmd.Load([]byte(info[api.KubeConfigKey]))
	if err != nil {
		return nil, fmt.Errorf("the cluster's information: %w", err)
	}
	for _, cluster := range config.Clusters {
		chain, err := cert.ParseCertsPEM(cluster.CertificateAuthorityData)
		if err == nil && slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return slices.Contains(d.Pins, jointoken.Pin(c)) }) {
			return cluster.CertificateAuthorityData, nil
		}
	}
	return nil, fmt.Errorf("%w: its authority has another public key", errDiffers)
}
