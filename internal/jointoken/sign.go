package jointoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
)

// Sign returns a JSON Web Signature of the algorithm HS256 without its content (RFC
// 7515, appendix F), by the token with this ID and key. kubeadm computes the same
// string and compares. (The key of a token is shorter than RFC 7518 requires, and
// go-jose does not take such keys.)
func Sign(content, id, key string) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(encode(header) + "." + encode([]byte(content))))
	return encode(header) + ".." + encode(mac.Sum(nil)), nil
}

// Signed reports whether a signature is that of the content by a token.
func Signed(content, signature, id, key string) bool {
	want, err := Sign(content, id, key)
	return err == nil && hmac.Equal([]byte(want), []byte(signature))
}

// Pin returns the pin of a certificate's public key, with which a machine that joins
// verifies the authority: sha256:HEX (RFC 7469, section 2.4, in hexadecimal).
func Pin(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}
