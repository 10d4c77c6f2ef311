package decide

import "fmt"

// Metric is what a metric proposes, or why it proposes nothing.
type Metric struct {
	// Name describes the metric, and Source what it is read from, such as "cpu resource".
	Name     string
	Source   string
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
// failed is the first metric that proposes nothing, which is the reason of the condition
// ScalingActive.
func Choose(metrics []Metric, current int32) (choice *Choice, failed *Metric, err error) {
	invalid := 0
	for i, m := range metrics {
		switch {
		case m.Err != nil:
			if invalid == 0 {
				failed = &metrics[i]
			}
			invalid++
		case choice == nil || m.Proposal.Replicas > choice.Replicas:
			choice = &Choice{m.Proposal.Replicas, m.Name}
		}
	}
	if failed == nil {
		return choice, nil, nil
	}
	err = failed.Err
	if failed.Source != "" {
		err = fmt.Errorf("failed to get %s metric value: %w", failed.Source, err)
	}
	err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", invalid, len(metrics), err)
	if choice == nil || choice.Replicas < current {
		return nil, failed, err
	}
	return choice, nil, err
}
