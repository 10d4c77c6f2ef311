package traffic

import (
	"math"
	"testing"

	. "github.com/onsi/gomega"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

// TestResolve gives outcomes to writes without a response.
func TestResolve(t *testing.T) {
	unknown := func(verb model.Verb, value string) model.Operation {
		return model.Operation{Request: model.Request{Verb: verb, Key: "k", Value: value}, Response: model.Response{Outcome: model.Unknown}}
	}
	changes := []history.Event{
		{Type: history.Added, Object: history.Object{Key: "k", UID: "u", Value: "a", Version: 2}},
		{Type: history.Modified, Object: history.Object{Key: "k", UID: "u", Value: "b", Version: 3}},
		{Type: history.Deleted, Object: history.Object{Key: "k", UID: "u", Value: "b", Version: 4}},
	}
	for rule, c := range map[string]struct {
		operation model.Operation
		responses []model.Response
	}{
		"a write that etcd has happened":         {unknown(model.Change, "b"), []model.Response{{Outcome: model.OK, Version: 3, UID: "u", Value: "b"}}},
		"an apply that etcd has as a create":     {unknown(model.Apply, "a"), []model.Response{{Outcome: model.OK, Version: 2, UID: "u", Value: "a", Created: true}}},
		"a write that etcd lacks did not happen": {unknown(model.Change, "c"), nil},
		"a delete may have happened":             {unknown(model.Delete, ""), []model.Response{{Outcome: model.Unknown}}},
	} {
		t.Run(rule, func(t *testing.T) {
			g := NewWithT(t)
			var responses []model.Response
			for _, o := range resolve([]model.Operation{c.operation}, changes) {
				responses = append(responses, o.Response)
				if o.Response.Outcome == model.OK {
					g.Expect(o.Return).To(Equal(int64(math.MaxInt64)))
				}
			}
			g.Expect(responses).To(Equal(c.responses))
		})
	}
}
