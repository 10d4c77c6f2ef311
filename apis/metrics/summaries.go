package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/warning"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis/resource"
)

const (
	// cacheTTL is how long a summary, or the error of its fetch, is used again.
	cacheTTL = 5 * time.Second
	// agentTimeout is the timeout of one fetch. requestTimeout is that of all fetches
	// of a request, which then uses the summaries that have arrived.
	agentTimeout   = 5 * time.Second
	requestTimeout = 10 * time.Second
	// maxConcurrent is the greatest number of fetches in flight.
	maxConcurrent = 100
	// maxSummaryBytes is the greatest size of a summary. A container takes some
	// hundred bytes.
	maxSummaryBytes = 16 << 20
	// maxWarnings is the greatest number of agents that a client is warned of one by
	// one.
	maxWarnings = 3
)

// summaries fetches the stats summaries of node agents. Requests that need the
// summary of the same agent share one fetch.
type summaries struct {
	slots chan struct{} // holds one element for each fetch in flight

	mu sync.Mutex
	// fetches are in flight, or have ended less than cacheTTL ago, by the URL of the
	// summary.
	fetches map[string]*fetch
}

// fetch is the fetch of one summary. Its goroutine ends before the last request
// that uses the fetch returns.
type fetch struct {
	url    string
	cancel context.CancelFunc
	users  int           // requests that use it; guarded by summaries.mu
	done   chan struct{} // closed after the following fields are set

	summary *summary
	err     error
	expires time.Time
}

// summary is the usage that an agent has measured.
type summary struct {
	node statsapi.NodeStats
	pods map[types.NamespacedName]*statsapi.PodStats
}

func newSummaries() *summaries {
	return &summaries{slots: make(chan struct{}, maxConcurrent), fetches: map[string]*fetch{}}
}

// get returns the summaries of the nodes' agents, by the names of the nodes.
// Agents that do not answer are left out, and the client is warned of them.
func (s *summaries) get(ctx context.Context, env *resource.Env, nodes []*corev1.Node) (map[string]*summary, error) {
	transport, err := env.Agents.Verified()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failures := map[string]error{}
	urls := map[string]*url.URL{}
	for _, n := range nodes {
		where, err := env.Agents.URL(n, "/stats/summary")
		if err != nil {
			failures[n.Name] = err
			continue
		}
		where.RawQuery = "only_cpu_and_memory=true"
		urls[n.Name] = where
	}
	fetches := s.join(ctx, env.Clock, transport, urls)
	defer s.leave(fetches)
	fetched := map[string]*summary{}
	for name, f := range fetches {
		if err := f.wait(ctx); err != nil {
			failures[name] = err
			continue
		}
		fetched[name] = f.summary
	}
	warn(ctx, nodes, failures)
	return fetched, nil
}

// join returns the fetches of the summaries at the URLs, with the caller as one
// of their users. It starts those that are not in flight and have no result in
// the cache, and removes expired results.
func (s *summaries) join(ctx context.Context, clock clock.PassiveClock, transport http.RoundTripper, urls map[string]*url.URL) map[string]*fetch {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	maps.DeleteFunc(s.fetches, func(_ string, f *fetch) bool { return f.ended() && !now.Before(f.expires) })
	joined := map[string]*fetch{}
	for name, where := range urls {
		f := s.fetches[where.String()]
		if f == nil {
			// The fetch goes on for its other users if this request is canceled.
			ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
			f = &fetch{url: where.String(), cancel: cancel, done: make(chan struct{})}
			s.fetches[f.url] = f
			go func() {
				defer close(f.done)
				f.summary, f.err = s.fetch(ctx, transport, where)
				f.expires = clock.Now().Add(cacheTTL)
			}()
		}
		f.users++
		joined[name] = f
	}
	return joined
}

// leave removes the caller from the users of the fetches. It cancels those that
// have no other user and waits for their end.
func (s *summaries) leave(fetches map[string]*fetch) {
	for _, f := range s.release(fetches) {
		<-f.done
	}
}

// release returns the fetches that have no user left, which it has canceled.
func (s *summaries) release(fetches map[string]*fetch) []*fetch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unused []*fetch
	for _, f := range fetches {
		if f.users--; f.users > 0 {
			continue
		}
		if !f.ended() { // before the cancel, whose error must not stay in the cache
			delete(s.fetches, f.url)
		}
		f.cancel()
		unused = append(unused, f)
	}
	return unused
}

// ended reports whether the fetch has its result.
func (f *fetch) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// wait waits for the end of the fetch and returns its error.
func (f *fetch) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	if f.ended() { // both have happened, and the result counts
		return f.err
	}
	return fmt.Errorf("its agent has not answered within %s", requestTimeout)
}

// warn warns the client of the nodes whose agents have not answered.
func warn(ctx context.Context, nodes []*corev1.Node, failures map[string]error) {
	left := len(failures)
	for _, n := range nodes {
		err := failures[n.Name]
		if err == nil {
			continue
		}
		if left == len(failures)-maxWarnings {
			warning.AddWarning(ctx, "", fmt.Sprintf("%d more nodes and their pods are left out", left))
			return
		}
		warning.AddWarning(ctx, "", fmt.Sprintf("node %q and its pods are left out: %v", n.Name, err))
		left--
	}
}

// fetch fetches the summary of an agent when a slot is free.
func (s *summaries) fetch(ctx context.Context, transport http.RoundTripper, where *url.URL) (*summary, error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	stats, err := roundTrip(transport, req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("its agent has not answered within %s", agentTimeout)
	}
	if err != nil {
		return nil, err
	}
	result := &summary{node: stats.Node, pods: make(map[types.NamespacedName]*statsapi.PodStats, len(stats.Pods))}
	for i := range stats.Pods {
		p := &stats.Pods[i]
		result.pods[types.NamespacedName{Namespace: p.PodRef.Namespace, Name: p.PodRef.Name}] = p
	}
	return result, nil
}

func roundTrip(transport http.RoundTripper, req *http.Request) (*statsapi.Summary, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("its agent cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its agent answers %s", resp.Status)
	}
	summary := &statsapi.Summary{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxSummaryBytes)).Decode(summary); err != nil {
		return nil, fmt.Errorf("its agent's answer cannot be read: %w", err)
	}
	return summary, nil
}
