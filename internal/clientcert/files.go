package clientcert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// Files is a certificate with its key, in two files that are read again when they
// change.
type Files struct{ watched[*tls.Certificate] }

// Open reads a certificate and its key.
func Open(cert, key string) (*Files, error) {
	f := &Files{watched[*tls.Certificate]{names: []string{cert, key}, load: func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
		}
		return &pair, nil
	}}}
	return f, f.open()
}

// openAuthorities reads a file of authorities.
func openAuthorities(file string) (*watched[*x509.CertPool], error) {
	w := &watched[*x509.CertPool]{names: []string{file}, load: func() (*x509.CertPool, error) {
		pool, err := cert.NewPool(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return pool, nil
	}}
	return w, w.open()
}

// watched is what files hold, which are read again when they change.
type watched[T any] struct {
	names []string
	load  func() (T, error)

	mu    sync.Mutex
	value T
	read  []os.FileInfo // of the files when they were last read, also without success
}

func (w *watched[T]) open() error {
	var err error
	if w.read, err = w.stat(); err == nil {
		w.value, err = w.load()
	}
	return err
}

// Current returns the newest content that is valid. When the files become invalid, it
// logs an error and returns the one before.
func (w *watched[T]) Current() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := w.stat()
	if err != nil || slices.EqualFunc(w.read, now, same) {
		return w.value // a file that is missing is being replaced, or is reported when it is back
	}
	w.read = now
	if value, err := w.load(); err != nil {
		klog.Background().WithName("clientcert").Error(err, "Failed to reload certificates of client, keeping those before", "files", w.names)
	} else {
		w.value = value
	}
	return w.value
}

func (w *watched[T]) stat() ([]os.FileInfo, error) {
	infos := make([]os.FileInfo, len(w.names))
	for i, name := range w.names {
		var err error
		if infos[i], err = os.Stat(name); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
