package hostcerts

import (
	"bytes"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// serving is the serving certificate, which changes while the server runs.
type serving struct {
	mu               sync.RWMutex
	name             string
	certificate, key []byte
	listeners        []dynamiccertificates.Listener
}

var _ dynamiccertificates.CertKeyContentProvider = &serving{}

func (s *serving) Name() string { return s.name }

func (s *serving) CurrentCertKeyContent() ([]byte, []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.certificate, s.key
}

func (s *serving) AddListener(listener dynamiccertificates.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, listener)
}

// publish makes the server use the certificate of a Secret for new connections.
func (s *serving) publish(data map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	certificate, key := data[servingName+".crt"], data[servingName+".key"]
	if bytes.Equal(certificate, s.certificate) && bytes.Equal(key, s.key) {
		return nil
	}
	s.certificate, s.key = certificate, key
	for _, listener := range s.listeners {
		listener.Enqueue()
	}
	return nil
}
