package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The poll period and the timeout of RunOnce. The timeout is that of kubelet's
// former --runonce.
const (
	runOncePoll    = 100 * time.Millisecond
	runOnceTimeout = 17 * time.Minute
)

// RunOnce starts the static pods, waits until each runs or has ended, and leaves
// them running (--runonce). It returns an error if a pod has failed, or does not run
// after 17 minutes.
func (a *Agent) RunOnce(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for began := a.Clock.Now(); ; {
		waiting, failed := a.pods.StartResult()
		late := a.Clock.Since(began) > runOnceTimeout
		if len(waiting) == 0 || late {
			stop()
			for _, pod := range waiting {
				failed = append(failed, fmt.Errorf("%s after %s", pod, runOnceTimeout))
			}
			return errors.Join(append(failed, <-ended)...)
		}
		select {
		case err := <-ended:
			return err
		case <-a.Clock.After(runOncePoll):
		}
	}
}
