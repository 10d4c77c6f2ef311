// Program rank ranks pods for eviction with the functions of the real kubelet: it reads nodes
// whose resources run out from the standard input, as JSON, and writes the names of their pods,
// the first to be evicted first. The comparison of svclet's ranking with it is in
// svclet/eviction.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	_ "unsafe" // for go:linkname: kubelet exports its eviction manager only

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	_ "k8s.io/kubernetes/pkg/kubelet/eviction" // has buildSignalToRankFunc
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

// Question is a node with its pods and what they use, and the signal whose threshold is met.
type Question struct {
	Pods   []*corev1.Pod
	Stats  []statsapi.PodStats
	Signal evictionapi.Signal
	// ImageFs reports whether images have a disk of their own, SplitFs whether the writable
	// layers of containers are not on that.
	ImageFs, SplitFs bool
}

// statsFunc returns what a pod uses, and whether that is known.
type statsFunc func(*corev1.Pod) (statsapi.PodStats, bool)

// buildSignalToRankFunc returns kubelet's ranking of each signal.
//
//go:linkname buildSignalToRankFunc k8s.io/kubernetes/pkg/kubelet/eviction.buildSignalToRankFunc
func buildSignalToRankFunc(withImageFs, imageContainerSplitFs bool) map[evictionapi.Signal]func([]*corev1.Pod, statsFunc)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	questions, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var q Question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		names, err := q.rank()
		if err != nil {
			return err
		}
		if err := answers.Encode(names); err != nil {
			return err
		}
	}
}

func (q *Question) rank() ([]string, error) {
	rank := buildSignalToRankFunc(q.ImageFs, q.SplitFs)[q.Signal]
	if rank == nil {
		return nil, fmt.Errorf("signal %q has no ranking", q.Signal)
	}
	rank(q.Pods, func(p *corev1.Pod) (statsapi.PodStats, bool) {
		for _, s := range q.Stats {
			if s.PodRef.UID == string(p.UID) {
				return s, true
			}
		}
		return statsapi.PodStats{}, false
	})
	var names []string
	for _, p := range q.Pods {
		names = append(names, p.Name)
	}
	return names, nil
}
