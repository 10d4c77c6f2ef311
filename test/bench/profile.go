package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// profile fetches a CPU profile during a measure and, when the returned function
// is called, a heap profile. It skips servers without /debug/pprof.
func (t *trial) profile(ctx context.Context, measure string) (finish func()) {
	if t.profiles == "" {
		return func() {}
	}
	var cpu sync.WaitGroup
	cpu.Go(func() {
		t.saveProfile(ctx, measure+"-cpu", fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(t.sizes.Profile.Seconds())))
	})
	return func() {
		cpu.Wait()
		t.saveProfile(ctx, measure+"-heap", "/debug/pprof/heap")
		t.saveProfile(ctx, measure+"-allocs", "/debug/pprof/allocs")
	}
}

// saveProfile writes a profile to SYSTEM-NAME.pb.gz. It only logs an error, since
// the figures do not depend on it.
func (t *trial) saveProfile(ctx context.Context, name, path string) {
	file := filepath.Join(t.profiles, t.system.Name()+"-"+name+".pb.gz")
	if err := t.fetch(ctx, path, file); err != nil {
		t.log("no profile %s: %s", file, err)
	}
}

func (t *trial) fetch(ctx context.Context, path, file string) error {
	clients, err := t.clients(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	body, err := clients[0].open(ctx, request{method: http.MethodGet, path: path, accept: "*/*"})
	if err != nil {
		return err
	}
	defer body.Close()
	if err := os.MkdirAll(t.profiles, 0o755); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, body)
	return errors.Join(err, out.Close())
}
