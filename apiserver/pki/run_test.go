package pki

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

func TestARunningServerRenewsBeforeTheExpiry(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	e := newEnvironment(t)
	e.cfg.NodeName, e.cfg.NodeFile = "worker", e.path("../node.svcconfig")
	p := e.open(t)
	before := e.all(t)
	defer run(t, p)()

	// At the first turn the leaves do not expire soon, at the second they do.
	turn(g, e, day)
	turn(g, e, leafLifetime-leafRenewal)
	for file, content := range before {
		if filepath.Ext(file) == ".crt" && file != "ca.crt" && file != "front-proxy-ca.crt" {
			g.Eventually(func() string { return e.read(t, file) }).ShouldNot(gomega.Equal(content), file)
		}
	}
	g.Eventually(func() (string, error) {
		content, err := os.ReadFile(e.cfg.ConnectionFile) // not e.read: temporary files exist meanwhile
		return string(content), err
	}).ShouldNot(gomega.Equal(before["connection"]))
	g.Expect(e.read(t, "ca.crt")).To(gomega.Equal(before["ca.crt"]))
	g.Expect(e.read(t, "admin.key")).To(gomega.Equal(before["admin.key"]))
}

func TestARunningServerRetriesAFailedRenewal(t *testing.T) {
	g := gomega.NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	e := newEnvironment(t)
	p := e.open(t)
	before := e.all(t)
	e.remove(t, "ca.key")
	defer run(t, p)()

	turn(g, e, leafLifetime)
	if err := os.WriteFile(e.path("ca.key"), []byte(before["ca.key"]), 0o600); err != nil {
		t.Fatal(err)
	}
	turn(g, e, renewalInterval)
	g.Eventually(func() string { return e.read(t, "apiserver.crt") }).ShouldNot(gomega.Equal(before["apiserver.crt"]))
}

// run runs p until the function that it returns is called, which waits for the end.
func run(t *testing.T, p *PKI) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// turn steps the clock when Run waits for it.
func turn(g *gomega.WithT, e *environment, by time.Duration) {
	g.Eventually(e.clock.HasWaiters).Should(gomega.BeTrue())
	e.clock.Step(by)
}
