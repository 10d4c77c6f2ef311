package pki

import (
	"bytes"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// connectionName is the name of the cluster and the context in connection files.
const connectionName = "svc"

// writeConnectionFile writes the kubeconfig of a client, if it has changed. The
// certificates are embedded, so that the file can be copied to other machines.
func (p *PKI) writeConnectionFile(file string, ca, client *pair) error {
	if file == "" {
		return nil
	}
	content, err := connectionFile(p.cfg.Server, ca, client)
	if err != nil {
		return fmt.Errorf("make %s: %w", file, err)
	}
	have, err := readFile(file)
	if err != nil {
		return err
	}
	if bytes.Equal(have, content) {
		return nil
	}
	return writeFile(file, content)
}

func connectionFile(server string, ca, client *pair) ([]byte, error) {
	authority, err := cert.EncodeCertificates(ca.certificate)
	if err != nil {
		return nil, err
	}
	certificate, err := cert.EncodeCertificates(client.certificate)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(client.key)
	if err != nil {
		return nil, err
	}
	user := client.certificate.Subject.CommonName
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{connectionName: {Server: server, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: certificate, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{connectionName: {Cluster: connectionName, AuthInfo: user}},
		CurrentContext: connectionName,
	})
}
