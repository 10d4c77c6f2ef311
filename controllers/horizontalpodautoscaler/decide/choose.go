package decide

import "fmt"

// Metric is what a metric proposes, or why it proposes nothing.
type Metric struct {
	// Name describes the metric.
	Name     string
	Proposal Proposal
	// Failure is the reason of the condition ScalingActive, and Err the error, if it
	// proposes nothing.
	Failure string
	Err     error
}

// Choice is the largest of the proposals.
type Choice struct {
	Replicas int32
	Name     string
}

// Choose returns the largest proposal. If some metrics propose nothing, it returns an
// error; it also has a choice unless all do, or the others would scale down: then
// failure is the reason of the condition ScalingActive.
func Choose(metrics []Metric, current int32) (choice *Choice, failure string, err error) {
	invalid := 0
	for _, m := range metrics {
		switch {
		case m.Err != nil:
			if invalid == 0 {
				failure, err = m.Failure, m.Err
			}
			invalid++
		case choice == nil || m.Proposal.Replicas > choice.Replicas:
			choice = &Choice{m.Proposal.Replicas, m.Name}
		}
	}
	if err != nil {
		err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", invalid, len(metrics), err)
		if choice == nil || choice.Replicas < current {
			return nil, failure, err
		}
	}
	return choice, "", err
}
