package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// requests is a stream of requests, each with a connection of its own.
type requests struct {
	stop             context.CancelFunc
	running          sync.WaitGroup
	answered, failed atomic.Int64
	mu               sync.Mutex
	first            error // of those that failed
}

// startLoad begins to send requests to a URL at a rate per second, until end.
func startLoad(ctx context.Context, url string, rate int) *requests {
	ctx, stop := context.WithCancel(ctx)
	l := &requests{stop: stop}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	l.running.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.running.Go(func() { l.send(context.WithoutCancel(ctx), client, url) })
			}
		}
	})
	return l
}

func (l *requests) send(ctx context.Context, client *http.Client, url string) {
	err := func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		return err
	}()
	if err == nil {
		l.answered.Add(1)
		return
	}
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

// end stops the stream, and returns how many requests were answered and an error if any
// was not.
func (l *requests) end() (answered int64, err error) {
	l.stop()
	l.running.Wait()
	if failed := l.failed.Load(); failed > 0 {
		err = fmt.Errorf("%d of %d requests failed, the first one: %w", failed, failed+l.answered.Load(), l.first)
	}
	return l.answered.Load(), err
}

var _ = Describe("a service under load", func() {
	var rate int
	var s space
	var url string
	BeforeEach(func(ctx SpecContext) {
		// LOAD=500 is how many requests a second there are.
		var err error
		rate, err = strconv.Atoi(cmp.Or(os.Getenv("LOAD"), "50"))
		Expect(err).NotTo(HaveOccurred(), "LOAD")
		Expect(rate).To(BeNumerically(">", 0), "LOAD")
		s = newSpace(ctx)
		// A pod serves for ten seconds after it was told to end: until no node sends it
		// connections any more.
		s.apply(ctx, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
      - name: main
        image: localhost/svc/server:1
        args: [--delay=10s]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`)
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		url = "http://" + s.run(ctx, "get", "service", "web", "-o=jsonpath={.spec.clusterIP}") + "/"
		Eventually(func() (string, error) { return get(ctx, url) }).ShouldNot(BeEmpty())
	})

	It("answers every request during a rolling update", func(ctx SpecContext) {
		l := startLoad(ctx, url, rate)
		s.run(ctx, "rollout", "restart", "deployment/web")
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		Eventually(func() string {
			return s.run(ctx, "get", "pods", "--selector=app=web", "--output=name")
		}).Should(MatchRegexp(`^(\S+\n){3}$`)) // the old pods have ended
		answered, err := l.end()
		Expect(err).NotTo(HaveOccurred())
		Expect(answered).To(BeNumerically(">", 0))
	})

	It("answers every request while containerd is killed, and while svc up is, with its agent and API server", func(ctx SpecContext) {
		l := startLoad(ctx, url, rate)
		before := listener(node.Endpoint())
		Expect(syscall.Kill(before, syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return listener(node.Endpoint()) }).ShouldNot(Or(Equal(before), BeZero()))
		node.Kill()
		out, err := exec.CommandContext(ctx, "nft", "list", "table", "ip", node.Bridge).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		s.run(ctx, "scale", "deployment/web", "--replicas=4")
		s.run(ctx, "rollout", "status", "deployment/web", "--timeout=3m")
		answered, err := l.end()
		Expect(err).NotTo(HaveOccurred())
		Expect(answered).To(BeNumerically(">", 0))
	})
})
