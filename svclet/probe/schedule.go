package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// schedule is a heap of probes ordered by their due time.
type schedule []*running

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	r := x.(*running)
	r.index = len(*s)
	*s = append(*s, r)
}

func (s *schedule) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	r.index = -1
	return r
}

// counter counts consecutive equal results. Its zero value has no result.
type counter struct {
	last bool
	run  int32
	// reported reports that a threshold has been reached, and value is the result reported
	// then.
	reported, value bool
}

// add counts one more run, and reports whether it reaches a threshold whose result
// has not been reported.
func (c *counter) add(success bool, spec *corev1.Probe) bool {
	if c.run == 0 || c.last != success {
		c.last, c.run = success, 0
	}
	threshold := spec.FailureThreshold
	if success {
		threshold = spec.SuccessThreshold
	}
	if c.run++; c.run < threshold {
		return false
	}
	// Runs beyond the threshold do not count.
	c.run = max(threshold, 1)
	if c.reported && c.value == success {
		return false
	}
	c.reported, c.value = true, success
	return true
}

// API defaults, for pods that did not come from the API server.
const (
	defaultPeriod  = 10
	defaultTimeout = 1
)

func periodOf(spec *corev1.Probe) time.Duration  { return seconds(spec.PeriodSeconds, defaultPeriod) }
func timeoutOf(spec *corev1.Probe) time.Duration { return seconds(spec.TimeoutSeconds, defaultTimeout) }

func seconds(n, ifNone int32) time.Duration {
	if n <= 0 {
		n = ifNone
	}
	return time.Duration(n) * time.Second
}
