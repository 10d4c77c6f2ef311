package clientcert

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"k8s.io/klog/v2"
)

// Files is a certificate with its key, in two files that are read again when they
// change.
type Files struct {
	cert, key string

	mu   sync.Mutex
	pair *tls.Certificate
	read [2]os.FileInfo // of the files when they were last read, also without success
}

// Open reads a certificate and its key.
func Open(cert, key string) (*Files, error) {
	f := &Files{cert: cert, key: key}
	var err error
	if f.read, err = f.stat(); err == nil {
		err = f.load()
	}
	return f, err
}

// Current returns the newest certificate that matches its key. When the files become
// unreadable, it logs an error and returns the one before.
func (f *Files) Current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.stat()
	if err != nil || same(f.read[0], now[0]) && same(f.read[1], now[1]) {
		return f.pair // a file that is missing is being replaced, or is reported when it is back
	}
	f.read = now
	if err := f.load(); err != nil {
		klog.Background().WithName("clientcert").Error(err, "Failed to reload client certificate, keeping the one before", "file", f.cert, "key", f.key)
	}
	return f.pair
}

func (f *Files) stat() (infos [2]os.FileInfo, err error) {
	for i, name := range []string{f.cert, f.key} {
		if infos[i], err = os.Stat(name); err != nil {
			return infos, err
		}
	}
	return infos, nil
}

func (f *Files) load() error {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", f.cert, f.key, err)
	}
	f.pair = &pair
	return nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
