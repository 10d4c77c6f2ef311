package hostcerts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// EtcdFiles are the files by which the server connects with etcd.
type EtcdFiles struct {
	// CAFile holds etcd's authorities; Client holds the client's certificate and its
	// key, in one file so that both change at once.
	CAFile, Client string
}

func etcdFiles(directory string) EtcdFiles {
	return EtcdFiles{CAFile: filepath.Join(directory, "etcd-ca.crt"), Client: filepath.Join(directory, "etcd-client.pem")}
}

// publish writes the files. Etcd's client reads that of its certificate for each new
// connection, and that of the authorities when it starts.
func (f EtcdFiles) publish(data map[string][]byte) error {
	return errors.Join(
		replaceFile(f.CAFile, data[authoritiesKey]),
		replaceFile(f.Client, slices.Concat(data[etcdClientName+".crt"], data[etcdClientName+".key"])))
}

// replaceFile writes a file that only this user can read, at once or not at all.
func replaceFile(path string, content []byte) error {
	present, err := os.ReadFile(path)
	if err == nil && bytes.Equal(present, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
