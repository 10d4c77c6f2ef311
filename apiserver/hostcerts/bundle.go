package hostcerts

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// authorityLifetime is how long an authority is valid. Its successor is trusted for
	// the last two years of it and signs for the last one: between them, every program
	// that reads authorities only when it starts, as etcd does, has to be restarted.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	successorTrusted  = 2 * 365 * 24 * time.Hour
	successorSigns    = 365 * 24 * time.Hour
	// handover is the least time that a successor is trusted before it signs, also when
	// no server has run for years.
	handover = 24 * time.Hour
	// leafLifetime is how long a certificate is valid; it is replaced in the last third.
	leafLifetime = 90 * 24 * time.Hour
	leafRenewal  = leafLifetime / 3
	// clockSkew is how long before now the validity of a certificate begins, for
	// clients whose clocks are behind.
	clockSkew = time.Hour
)

const (
	// authoritiesKey is the key in a Secret of the authorities to trust, in PEM.
	authoritiesKey = "ca.crt"
	// signerName and successorName are the names, before .crt and .key, of the authority
	// that signs and of the one that will sign after it.
	signerName    = "signer"
	successorName = "successor"
)

// leaf is what a certificate has to be.
type leaf struct {
	// name is the name in the Secret, before .crt and .key.
	name       string
	commonName string
	// hosts are the DNS names and IP addresses of a server.
	hosts  []string
	usages []x509.ExtKeyUsage
}

// bundle is what a Secret has to be: an authority and certificates that it has signed.
type bundle struct {
	// authority is the common name of the authority.
	authority string
	leaves    []leaf
}

// pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// secret is the content of a Secret, decoded.
type secret struct {
	trusted           []*x509.Certificate
	signer, successor *pair
}

// step changes a secret if its condition holds, and returns whether it does.
type step struct {
	reason string
	change func(s *secret, b bundle, now time.Time) (bool, error)
}

// steps are done in this order.
var steps = []step{
	{"the authority does not exist or is not valid any more", replaceSigner},
	{"the authority expires within two years, its successor is trusted from now on", addSuccessor},
	{"the authority expires within a year, its successor signs from now on", promoteSuccessor},
	{"an authority that was trusted has expired", removeExpired},
}

// renew returns the data that a Secret has to have at a time, and the reasons why that
// is not what it has. It returns no reasons if nothing has to change. Keys that are not
// of the bundle are kept.
func (b bundle) renew(have map[string][]byte, now time.Time) (map[string][]byte, []string, error) {
	s, err := decode(have)
	if err != nil {
		return nil, nil, err
	}
	var reasons []string
	for _, step := range steps {
		changed, err := step.change(s, b, now)
		if err != nil {
			return nil, nil, err
		}
		if changed {
			reasons = append(reasons, step.reason)
		}
	}
	data := maps.Clone(have)
	if data == nil {
		data = map[string][]byte{}
	}
	if len(reasons) > 0 {
		if err := s.encode(data); err != nil {
			return nil, nil, err
		}
	}
	for _, l := range b.leaves {
		current, err := readPair(have, l.name)
		if err != nil {
			return nil, nil, err
		}
		reason := l.outdated(current, s.signer.certificate, now)
		if reason == "" {
			continue
		}
		if current != nil {
			l.hosts = union(l.hosts, current.certificate)
		}
		made, err := l.issue(s.signer, now)
		if err != nil {
			return nil, nil, fmt.Errorf("issue %s.crt: %w", l.name, err)
		}
		if err := made.write(data, l.name); err != nil {
			return nil, nil, err
		}
		reasons = append(reasons, fmt.Sprintf("%s.crt: %s", l.name, reason))
	}
	return data, reasons, nil
}

// replaceSigner makes an authority if there is none that is valid.
func replaceSigner(s *secret, b bundle, now time.Time) (bool, error) {
	if s.signer != nil && now.Before(s.signer.certificate.NotAfter) && !now.Before(s.signer.certificate.NotBefore) {
		return false, nil
	}
	if s.successor != nil && now.Before(s.successor.certificate.NotAfter) && !now.Before(s.successor.certificate.NotBefore) {
		s.signer, s.successor = s.successor, nil
		return true, nil
	}
	made, err := newAuthority(b.authority, now)
	if err != nil {
		return false, err
	}
	s.signer, s.successor = made, nil
	s.trusted = append([]*x509.Certificate{made.certificate}, s.trusted...)
	return true, nil
}

func addSuccessor(s *secret, b bundle, now time.Time) (bool, error) {
	if s.successor != nil || now.Add(successorTrusted).Before(s.signer.certificate.NotAfter) {
		return false, nil
	}
	made, err := newAuthority(b.authority, now)
	if err != nil {
		return false, err
	}
	s.successor = made
	s.trusted = append([]*x509.Certificate{made.certificate}, s.trusted...)
	return true, nil
}

func promoteSuccessor(s *secret, _ bundle, now time.Time) (bool, error) {
	if s.successor == nil || now.Add(successorSigns).Before(s.signer.certificate.NotAfter) ||
		now.Before(s.successor.certificate.NotBefore.Add(clockSkew+handover)) {
		return false, nil
	}
	s.signer, s.successor = s.successor, nil
	return true, nil
}

func removeExpired(s *secret, _ bundle, now time.Time) (bool, error) {
	before := len(s.trusted)
	s.trusted = slices.DeleteFunc(s.trusted, func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	return len(s.trusted) < before, nil
}

// outdated returns why a certificate has to be replaced, or nothing.
func (l leaf) outdated(have *pair, signer *x509.Certificate, now time.Time) string {
	switch {
	case have == nil:
		return "it does not exist"
	case have.certificate.CheckSignatureFrom(signer) != nil:
		return "another authority has signed it"
	case now.Before(have.certificate.NotBefore):
		return "it is not valid yet: the clock was set back"
	case now.Add(leafRenewal).After(have.certificate.NotAfter) && have.certificate.NotAfter.Before(signer.NotAfter):
		return "it expires soon"
	}
	for _, host := range l.hosts {
		if have.certificate.VerifyHostname(host) != nil {
			return "it lacks the host name " + host
		}
	}
	return ""
}

// nextRenewal returns when renew has to be called again for data that is up to date.
func (b bundle) nextRenewal(data map[string][]byte) (time.Time, error) {
	s, err := decode(data)
	if err != nil {
		return time.Time{}, err
	}
	if s.signer == nil {
		return time.Time{}, nil
	}
	expiry := s.signer.certificate.NotAfter
	next := expiry.Add(-successorTrusted)
	if s.successor != nil {
		next = expiry.Add(-successorSigns)
		if ready := s.successor.certificate.NotBefore.Add(clockSkew + handover); ready.After(next) {
			next = ready
		}
	}
	for _, l := range b.leaves {
		current, err := readPair(data, l.name)
		if err != nil {
			return time.Time{}, err
		}
		if current == nil {
			return time.Time{}, nil
		}
		if at := current.certificate.NotAfter.Add(-leafRenewal); at.Before(next) {
			next = at
		}
	}
	for _, c := range s.trusted {
		if c.NotAfter.Before(next) {
			next = c.NotAfter
		}
	}
	return next, nil
}

func decode(data map[string][]byte) (*secret, error) {
	s := &secret{}
	var err error
	if s.signer, err = readPair(data, signerName); err != nil {
		return nil, err
	}
	if s.successor, err = readPair(data, successorName); err != nil {
		return nil, err
	}
	if content := data[authoritiesKey]; len(content) > 0 {
		if s.trusted, err = cert.ParseCertsPEM(content); err != nil {
			return nil, fmt.Errorf("%s: %w", authoritiesKey, err)
		}
	}
	// Another writer has changed the Secret: no client would trust what it signs.
	for _, p := range []*pair{s.signer, s.successor} {
		if p != nil && !slices.ContainsFunc(s.trusted, p.certificate.Equal) {
			return nil, fmt.Errorf("%s lacks the authority %q", authoritiesKey, p.certificate.SerialNumber)
		}
	}
	return s, nil
}

func (s *secret) encode(data map[string][]byte) error {
	content, err := cert.EncodeCertificates(s.trusted...)
	if err != nil {
		return err
	}
	data[authoritiesKey] = content
	if err := s.signer.write(data, signerName); err != nil {
		return err
	}
	if s.successor == nil {
		delete(data, successorName+".crt")
		delete(data, successorName+".key")
		return nil
	}
	return s.successor.write(data, successorName)
}

// readPair returns nil if the data has neither the certificate nor its key.
func readPair(data map[string][]byte, name string) (*pair, error) {
	content, keyContent := data[name+".crt"], data[name+".key"]
	if len(content) == 0 && len(keyContent) == 0 {
		return nil, nil
	}
	certificates, err := cert.ParseCertsPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", name, err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyContent)
	if err != nil {
		return nil, fmt.Errorf("%s.key: %w", name, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s.key: a key of type %T cannot sign", name, parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("%s.key: %w", name, err)
	}
	if !bytes.Equal(public, certificates[0].RawSubjectPublicKeyInfo) {
		return nil, errors.New(name + ".key is not the key of " + name + ".crt")
	}
	return &pair{certificates[0], key}, nil
}

func (p *pair) write(data map[string][]byte, name string) error {
	content, err := cert.EncodeCertificates(p.certificate)
	if err != nil {
		return err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(p.key)
	if err != nil {
		return err
	}
	data[name+".crt"], data[name+".key"] = content, key
	return nil
}
