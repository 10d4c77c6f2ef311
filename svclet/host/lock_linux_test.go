package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLockWaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	waiting, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := Lock(waiting, path); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held is got: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestOpeningOrRemovingTheLockFileIsContention(t *testing.T) {
	for name, contend := range map[string]func(path string) error{
		"opens": func(path string) error {
			file, err := os.Open(path)
			if err == nil {
				err = file.Close()
			}
			return err
		},
		"removes": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			held, err := Lock(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			contended := make(chan struct{})
			if err := held.Contended(t.Context(), func() { close(contended) }); err != nil {
				t.Fatal(err)
			}
			if err := contend(path); err != nil {
				t.Fatal(err)
			}
			if name == "removes" {
				held.Close() // a file that is open is not gone yet
			}
			select {
			case <-contended:
			case <-t.Context().Done():
			}
		})
	}
}
