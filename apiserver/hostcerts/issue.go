package hostcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// newAuthority makes an authority that signs itself.
func newAuthority(name string, now time.Time) (*pair, error) {
	made, err := sign(x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              now.Add(authorityLifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil, now)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return made, nil
}

// issue makes a certificate with a key of its own. It does not outlive the signer.
func (l leaf) issue(signer *pair, now time.Time) (*pair, error) {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: l.commonName},
		NotAfter:    now.Add(leafLifetime).UTC(),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: l.usages,
	}
	if end := signer.certificate.NotAfter; template.NotAfter.After(end) {
		template.NotAfter = end
	}
	for _, host := range l.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, signer, now)
}

// sign makes a key, and a certificate of it. Without a signer it signs itself.
func sign(template x509.Certificate, signer *pair, now time.Time) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore = now.Add(-clockSkew).UTC()
	if signer == nil {
		// Authorities of the same name are told apart by the identifiers of their keys.
		signer = &pair{&template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{certificate, key}, nil
}

// union returns the hosts and those of a certificate: servers that were started with
// other flags still need theirs.
func union(hosts []string, have *x509.Certificate) []string {
	all := append(slices.Clone(hosts), have.DNSNames...)
	for _, ip := range have.IPAddresses {
		all = append(all, ip.String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
