package certificates

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/checkpoint"
)

// Bootstrap is how a machine gets its first client certificate.
type Bootstrap struct {
	// Node is the node's name.
	Node string
	// File is the bootstrap kubeconfig (--bootstrap-svcconfig).
	File string
	// Connection is the file that is written (--svcconfig). A file whose client
	// certificate is valid is kept.
	Connection string
	// Dir is where the certificate and its key are stored (--cert-dir).
	Dir   string
	Clock clock.Clock
}

// bootstrapRetry is the pause between two requests that fail for another reason than
// the credentials.
const bootstrapRetry = 2 * time.Second

// rejections returns the pauses after requests whose credentials the API server rejects. It
// may reject a valid token for a moment: right after the token's creation, or while others
// guess tokens.
func rejections() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 4}
}

// Run requests a client certificate and writes the connection file that names it. It
// does nothing if the connection file's certificate is valid. It waits for the API
// server and for the approval, and returns an error if the API server rejects the
// request, or the credentials also after some retries.
func (b Bootstrap) Run(ctx context.Context) error {
	valid, err := b.connected(ctx)
	if err != nil || valid {
		return err
	}
	api, err := clientcmd.BuildConfigFromFlags("", b.File)
	if err != nil {
		return fmt.Errorf("--bootstrap-svcconfig: %s: %w", b.File, err)
	}
	client, err := requests(api)
	if err != nil {
		return fmt.Errorf("--bootstrap-svcconfig: %s: %w", b.File, err)
	}
	store, err := certificate.NewFileStore(clientPair, b.Dir, b.Dir, "", "")
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	// The key outlives the process, so that a restart waits for the same request.
	keyFile := filepath.Join(b.Dir, clientPair+".key.tmp")
	rejected := rejections()
	for {
		err := b.request(ctx, client, newClientRequest(b.Node, api.Host), store, keyFile)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause := bootstrapRetry
		if apierrors.IsUnauthorized(err) && rejected.Steps > 0 {
			pause = rejected.Step()
		} else if final(err) {
			return fmt.Errorf("--bootstrap-svcconfig: request a client certificate: %w", err)
		}
		klog.FromContext(ctx).Error(err, "Failed to request the first client certificate, will retry", "server", api.Host)
		select {
		case <-ctx.Done():
		case <-b.Clock.After(pause):
		}
	}
	if err := writeConnection(api, b.Connection, store.CurrentPath()); err != nil {
		return err // with the key, the next start finds the same request
	}
	if err := os.Remove(keyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return nil
}

// errRejected is the error of a request that is denied, or that the signer fails.
var errRejected = errors.New("the request is rejected")

// final reports whether a further request would fail, too.
func final(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || errors.Is(err, errRejected)
}

// request sends the request, or finds the one that an earlier start has sent, and
// stores the certificate.
func (b Bootstrap) request(ctx context.Context, client kubernetes.Interface, want clientRequest, store certificate.Store, keyFile string) error {
	key, keyPEM, err := requestKey(ctx, keyFile)
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	request, err := cert.MakeCSR(key, &want.subject, nil, nil)
	if err != nil {
		return err
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if _, isRSA := key.(*rsa.PrivateKey); isRSA {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	requestName, err := requestName(key, want.subject.CommonName)
	if err != nil {
		return err
	}
	sent, uid, err := csr.RequestCertificateWithContext(ctx, client, request, requestName, want.signer, nil, usages, key)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Waiting for the client certificate to be issued", "csr", sent)
	signed, err := csr.WaitForCertificate(ctx, client, sent, uid)
	if err != nil {
		return b.explain(ctx, client, sent, keyFile, err)
	}
	if _, err = store.Update(signed, keyPEM); err != nil {
		return err
	}
	return checkpoint.Sync(b.Dir) // before the key that it replaces is removed
}

// requestKey returns the key in a file, or writes one. A file without a key, which a full disk or
// a power failure leaves, is replaced: no certificate could be requested with it.
func requestKey(ctx context.Context, file string) (crypto.Signer, []byte, error) {
	keyPEM, err := os.ReadFile(file)
	switch {
	case err == nil:
		parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
		if key, signs := parsed.(crypto.Signer); err == nil && signs {
			return key, keyPEM, nil
		}
		klog.FromContext(ctx).Info("Key of the request for a client certificate is damaged, making another", "file", file)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	if keyPEM, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return nil, nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, err
	}
	key, signs := parsed.(crypto.Signer)
	if !signs {
		return nil, nil, fmt.Errorf("a key of type %T does not sign", parsed)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // The files in it are protected.
		return nil, nil, err
	}
	return key, keyPEM, checkpoint.Replace(file, keyPEM)
}

// explain returns the error of a wait. If the request was denied or has failed, it
// removes the key, so that the next start sends another request.
func (b Bootstrap) explain(ctx context.Context, client kubernetes.Interface, name, keyFile string, err error) error {
	sent, getErr := client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
	if getErr != nil {
		return err // the wait was interrupted, or the request was deleted
	}
	for _, c := range sent.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return errors.Join(fmt.Errorf("%w: %w", errRejected, err), os.Remove(keyFile))
		}
	}
	return err
}

// requestName returns the name of the request of a key: the same for the same key and
// user.
func requestName(key crypto.Signer, user string) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(public, user...))
	return "node-csr-" + hex.EncodeToString(sum[:]), nil
}

// connected reports whether the connection file has a client certificate that is valid
// now, or another credential.
func (b Bootstrap) connected(ctx context.Context) (bool, error) {
	// A power failure may have left a file that was not synced empty.
	if info, err := os.Stat(b.Connection); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("--svcconfig: %w", err)
	}
	api, err := clientcmd.BuildConfigFromFlags("", b.Connection)
	if err != nil {
		return false, fmt.Errorf("--svcconfig: %s: %w", b.Connection, err)
	}
	if api.CertFile == "" && len(api.CertData) == 0 {
		return true, nil
	}
	logger := klog.FromContext(ctx)
	if err := rest.LoadTLSFiles(api); err != nil {
		logger.Info("Client certificate cannot be read, requesting another", "svcconfig", b.Connection, "reason", err.Error())
		return false, nil
	}
	chain, err := cert.ParseCertsPEM(api.CertData)
	if err != nil {
		logger.Info("Client certificate cannot be parsed, requesting another", "svcconfig", b.Connection, "reason", err.Error())
		return false, nil
	}
	if b.Clock.Now().After(chain[0].NotAfter) {
		logger.Info("Client certificate has expired, requesting another", "svcconfig", b.Connection, "expired", chain[0].NotAfter)
		return false, nil
	}
	return true, nil
}

// writeConnection writes the connection file of a node whose certificate and key are in
// a file.
func writeConnection(api *rest.Config, path, pair string) error {
	const name = "default"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: api.Host, TLSServerName: api.ServerName, InsecureSkipTLSVerify: api.Insecure,
		CertificateAuthority: api.CAFile, CertificateAuthorityData: api.CAData,
	}
	if api.CAFile != "" {
		config.Clusters[name].CertificateAuthorityData = nil
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: pair, ClientKey: pair}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = checkpoint.Replace(path, content)
	}
	if err != nil {
		return fmt.Errorf("--svcconfig: %w", err)
	}
	return nil
}
