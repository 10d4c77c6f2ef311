package node

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

// callers are HTTP clients that call a service without a pause. They find
// its endpoints in its EndpointSlices, as a proxy does.
type callers struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	slices   map[string]discoveryv1.EndpointSlice
	answers  map[string]int // number by content of the answer
	failures []string
}

// newCallers starts callers, and returns when the service has answered.
func newCallers(ctx context.Context, s space, service string) *callers {
	GinkgoHelper()
	c := &callers{slices: map[string]discoveryv1.EndpointSlice{}, answers: map[string]int{}}
	var calling context.Context
	calling, c.end = context.WithCancel(ctx)
	DeferCleanup(func() { c.stop() })
	var list discoveryv1.EndpointSliceList
	watched, err := client.Watch(calling, &list, ctrlclient.InNamespace(s.name), ctrlclient.MatchingLabels{discoveryv1.LabelServiceName: service})
	Expect(err).NotTo(HaveOccurred())
	c.done.Go(func() {
		defer watched.Stop()
		for event := range watched.ResultChan() {
			c.learn(event)
		}
	})
	for range 3 {
		c.done.Go(func() { c.call(calling) })
	}
	Eventually(func() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.answers) }).ShouldNot(BeZero())
	return c
}

func (c *callers) learn(event watch.Event) {
	slice, ok := event.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if event.Type == watch.Deleted {
		delete(c.slices, slice.Name)
		return
	}
	c.slices[slice.Name] = *slice
}

// addresses returns the ready endpoints.
func (c *callers) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, slice := range c.slices {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				all = append(all, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*slice.Ports[0].Port))))
			}
		}
	}
	return all
}

func (c *callers) call(ctx context.Context) {
	transport := newTransport()
	for ctx.Err() == nil {
		addresses := c.addresses()
		if len(addresses) == 0 {
			continue
		}
		answer, err := ask(transport, "http://"+addresses[rand.IntN(len(addresses))])
		c.mu.Lock()
		if err != nil {
			c.failures = append(c.failures, err.Error())
		} else {
			c.answers[answer]++
		}
		c.mu.Unlock()
	}
}

// newTransport creates a connection for each request, so that none outlives its
// endpoint.
func newTransport() *http.Transport { return &http.Transport{DisableKeepAlives: true} }

// stop ends the calls, and returns the number of each answer, and the failures.
func (c *callers) stop() (answers map[string]int, failures []string) {
	c.end()
	c.done.Wait()
	return c.answers, c.failures
}

func ask(transport http.RoundTripper, url string) (string, error) {
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, content)
	}
	return strings.TrimSpace(string(content)), err
}
