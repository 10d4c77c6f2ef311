package podcertificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// keyTypes make the keys that a source of a volume may ask for.
var keyTypes = map[string]func() (crypto.Signer, error){
	"RSA3072":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA4096":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"ECDSAP256": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"ECDSAP384": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"ECDSAP521": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
	"ED25519": func() (crypto.Signer, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
}

// NewKey makes a private key of a type, and returns it in PEM, as PKCS#8, with a certificate
// request in DER that has nothing but the public key and proves possession of the private
// one: signers take all else from the PodCertificateRequest.
func NewKey(keyType string) (key, stub []byte, err error) {
	generate, known := keyTypes[keyType]
	if !known {
		return nil, nil, fmt.Errorf("unknown key type %q", keyType)
	}
	private, err := generate()
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key of type %s: %w", keyType, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	if stub, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub, nil
}

// clean returns the certificates of a chain in PEM without headers and without text between
// the blocks.
func clean(chain string) []byte {
	var cleaned []byte
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		cleaned = append(cleaned, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
	}
	return cleaned
}
