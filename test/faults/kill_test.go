package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/test/launch"
)

// journal is what the server has acknowledged: the last value of each object,
// and nil for one that was deleted.
type journal struct {
	mu    sync.Mutex
	known map[string]*int
	// pending are requests without a response: they may have been executed or not.
	pending map[string]bool
	count   int
	enough  chan struct{}
	goal    int
}

func (j *journal) begin(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending[name] = true
}

func (j *journal) acknowledge(name string, value *int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.known[name] = value
	delete(j.pending, name)
	if j.count++; j.count == j.goal {
		close(j.enough)
	}
}

// TestKillLosesNothingAcknowledged kills the server while clients write, at
// the acknowledgement of some write, and compares what is there afterwards
// with what was acknowledged.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(tempDir(t), "data")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	j := &journal{known: map[string]*int{}, pending: map[string]bool{}}

	const rounds, writers = 5, 8
	for round := range rounds {
		server := up(t, dir)
		client := clientOf(t, server.Config)
		verify(t, client, j)

		j.count, j.goal, j.enough = 0, 50+random.IntN(400), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { write(ctx, client, j, fmt.Sprintf("r%d-w%d", round, w)) })
		}
		select {
		case <-j.enough:
		case <-server.Exited():
		}
		server.Kill()
		cancel()
		wg.Wait()
		g.Expect(j.count).To(BeNumerically(">=", j.goal), server.Output())
	}
	last := up(t, dir)
	verify(t, clientOf(t, last.Config), j)
	code, err := last.Stop(launch.Patience)
	g.Expect(err).NotTo(HaveOccurred(), last.Output())
	g.Expect(code).To(BeZero(), last.Output())
}

// write creates, updates and deletes objects until the server has stopped.
func write(ctx context.Context, client kubernetes.Interface, j *journal, prefix string) {
	maps := client.CoreV1().ConfigMaps("default")
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", prefix, n)
		for value := range 3 {
			cm := configMap(name, strconv.Itoa(value))
			j.begin(name)
			var err error
			if value == 0 {
				_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
			} else {
				_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
			}
			if err != nil {
				return
			}
			j.acknowledge(name, &value)
		}
		if n%3 == 0 {
			j.begin(name)
			if maps.Delete(ctx, name, metav1.DeleteOptions{}) != nil {
				return
			}
			j.acknowledge(name, nil)
		}
	}
}

// verify compares what the server has with the journal.
func verify(t *testing.T, client kubernetes.Interface, j *journal) {
	t.Helper()
	g := NewWithT(t)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	there := map[string]int{}
	for _, cm := range list.Items {
		value, err := strconv.Atoi(cm.Data["value"])
		if err == nil {
			there[cm.Name] = value
		}
	}
	for name, want := range j.known {
		got, found := there[name]
		switch {
		case j.pending[name]:
			// The write that was not answered may have happened: one step further.
			if want != nil && found && got != *want && got != *want+1 {
				t.Errorf("%s is %d; %d was acknowledged", name, got, *want)
			}
			if want != nil && !found && *want < 2 {
				t.Errorf("%s is gone; %d was acknowledged", name, *want)
			}
		case want == nil && found:
			t.Errorf("%s is there; its deletion was acknowledged", name)
		case want != nil && !found:
			t.Errorf("%s is gone; %d was acknowledged", name, *want)
		case want != nil && got != *want:
			t.Errorf("%s is %d; %d was acknowledged", name, got, *want)
		}
	}
	// What is unsettled stays so: from here on only the acknowledged counts.
	for name := range j.pending {
		delete(j.known, name)
	}
	clear(j.pending)
}
