package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/warning"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"svc.dev/svc/apis/resource"
)

const (
	// fresh is how long an answer, or that there was none, is given again.
	fresh = 5 * time.Second
	// agentTimeout is for one agent, requestTimeout for all that a request
	// needs: it is answered by then with what is known.
	agentTimeout   = 5 * time.Second
	requestTimeout = 10 * time.Second
	// most is how many agents are asked at a time.
	most = 100
	// longest is the size of an answer, in bytes. It is some hundred a
	// container.
	longest = 16 << 20
	// told is how many agents that have not answered a client is told about.
	told = 3
)

// survey asks agents what their nodes and pods use.
type survey struct {
	room chan struct{} // holds one for each agent that is being asked

	mu sync.Mutex
	// asked are the questions that are open, or have an answer that is fresh,
	// by the URL of the agent.
	asked map[string]*question
}

// question is put to one agent for all who want to know.
type question struct {
	answered chan struct{} // closed when the others are set
	answer   *answer
	err      error
}

// answer is what an agent has said.
type answer struct {
	node statsapi.NodeStats
	pods map[types.NamespacedName]*statsapi.PodStats
}

func newSurvey() *survey {
	return &survey{room: make(chan struct{}, most), asked: map[string]*question{}}
}

// ask returns the answers of the agents of nodes, by the nodes' names. Those
// that do not answer are left out, and the client is warned.
func (s *survey) ask(ctx context.Context, agents resource.Agents, nodes []*corev1.Node) (map[string]*answer, error) {
	transport, err := agents.Verified()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failures := map[string]error{}
	questions := map[string]*question{}
	for _, n := range nodes {
		where, err := agents.URL(n, "/stats/summary")
		if err != nil {
			failures[n.Name] = err
			continue
		}
		where.RawQuery = "only_cpu_and_memory=true"
		questions[n.Name] = s.question(ctx, transport, where)
	}
	answers := map[string]*answer{}
	for name, q := range questions {
		if err := q.wait(ctx); err != nil {
			failures[name] = err
			continue
		}
		answers[name] = q.answer
	}
	warn(ctx, nodes, failures)
	return answers, nil
}

// wait returns when there is an answer, with the reason if there is none.
func (q *question) wait(ctx context.Context) error {
	select {
	case <-q.answered:
		return q.err
	default: // and when both is true, the answer counts
	}
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return fmt.Errorf("nothing was heard of it within %s", requestTimeout)
	}
}

// warn tells the client whose agents have not answered.
func warn(ctx context.Context, nodes []*corev1.Node, failures map[string]error) {
	left := len(failures)
	for _, n := range nodes {
		err := failures[n.Name]
		if err == nil {
			continue
		}
		if left == len(failures)-told {
			warning.AddWarning(ctx, "", fmt.Sprintf("so are %d more", left))
			return
		}
		warning.AddWarning(ctx, "", fmt.Sprintf("node %q and its pods are left out: %v", n.Name, err))
		left--
	}
}

// question puts a question to an agent, unless that has been done lately. It
// is answered even if the first who wanted to know has gone.
func (s *survey) question(ctx context.Context, transport http.RoundTripper, where *url.URL) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := where.String()
	if q := s.asked[key]; q != nil {
		return q
	}
	q := &question{answered: make(chan struct{})}
	s.asked[key] = q
	go func() {
		s.room <- struct{}{}
		q.answer, q.err = fetch(context.WithoutCancel(ctx), transport, where)
		<-s.room
		close(q.answered)
		time.AfterFunc(fresh, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.asked, key)
		})
	}()
	return q
}

// fetch asks an agent.
func fetch(ctx context.Context, transport http.RoundTripper, where *url.URL) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, err
	}
	summary, err := summaryOf(transport, req)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("its agent has not answered within %s", agentTimeout)
	}
	if err != nil {
		return nil, err
	}
	a := &answer{node: summary.Node, pods: make(map[types.NamespacedName]*statsapi.PodStats, len(summary.Pods))}
	for i := range summary.Pods {
		p := &summary.Pods[i]
		a.pods[types.NamespacedName{Namespace: p.PodRef.Namespace, Name: p.PodRef.Name}] = p
	}
	return a, nil
}

func summaryOf(transport http.RoundTripper, req *http.Request) (*statsapi.Summary, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("its agent cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its agent answers %s", resp.Status)
	}
	summary := &statsapi.Summary{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, longest)).Decode(summary); err != nil {
		return nil, fmt.Errorf("its agent's answer cannot be read: %w", err)
	}
	return summary, nil
}
