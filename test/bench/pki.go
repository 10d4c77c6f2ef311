package main

import (
	"errors"
	"os"
	"path/filepath"

	"svc.dev/svc/test/launch"
)

// writePKI creates the files that kube-apiserver needs: an authority, a serving
// certificate, an administrator's certificate and a key for service accounts,
// all of them ECDSA P-256 as those of svc are.
func writePKI(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	authority, err := launch.NewAuthority(dir)
	if err != nil {
		return err
	}
	_, err = launch.WriteKey(filepath.Join(dir, "service-account.key"))
	return errors.Join(err,
		authority.Server(dir, "server", "kube-apiserver", "localhost", "kubernetes.default.svc", "127.0.0.1"),
		authority.Client(dir, "admin", "admin", "system:masters"))
}
