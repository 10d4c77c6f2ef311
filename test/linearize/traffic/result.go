package traffic

import (
	"context"
	"errors"
	"fmt"
	"math"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

// Result is the record of all requests and watches.
type Result struct {
	operations []model.Operation
	run        history.Run
	// last is the version before the last change.
	last uint64
	// unexpected are responses that no request should get.
	unexpected []string
}

// Check compares the record with all changes of the collection, and returns an error that
// describes what breaks a rule.
func (r *Result) Check(ctx context.Context, recording *history.Recording) error {
	var err error
	r.run.Changes, err = recording.Until(ctx, func(e history.Event) bool {
		return e.Key == lastKey && e.Version > r.last
	})
	if err != nil {
		return fmt.Errorf("read the changes from etcd: %w", err)
	}
	var errs []error
	for _, text := range r.unexpected {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(append(errs, history.Check(r.run), model.Check(resolve(r.operations, r.run.Changes)))...)
}

// String counts what the record has.
func (r *Result) String() string {
	outcomes := map[model.Outcome]int{}
	for _, o := range r.operations {
		outcomes[o.Response.Outcome]++
	}
	events := 0
	for _, w := range r.run.Watches {
		events += len(w.Events)
	}
	return fmt.Sprintf("%d operations %v, %d changes, %d lists, %d gets, %d watches with %d events",
		len(r.operations), outcomes, len(r.run.Changes), len(r.run.Lists), len(r.run.Gets), len(r.run.Watches), events)
}

// resolve gives the writes with unknown outcomes those that the changes show: each value
// is of one write. A write that never happened is left out.
func resolve(operations []model.Operation, changes []history.Event) []model.Operation {
	happened := map[string]model.Response{}
	for _, e := range changes {
		if e.Type != history.Deleted {
			response := responseOf(e.Object)
			response.Created = e.Type == history.Added
			happened[e.Value] = response
		}
	}
	var resolved []model.Operation
	for _, o := range operations {
		if o.Response.Outcome == model.Unknown && o.Request.Value != "" {
			response, ok := happened[o.Request.Value]
			if !ok {
				continue
			}
			o.Response, o.Return = response, math.MaxInt64
		}
		resolved = append(resolved, o)
	}
	return resolved
}
