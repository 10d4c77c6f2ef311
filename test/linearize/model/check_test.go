package model

import (
	"testing"

	. "github.com/onsi/gomega"
)

// one is a history of requests that follow one another.
func one(operations ...Operation) []Operation {
	for i := range operations {
		operations[i].Request.Key = "k"
		operations[i].Call, operations[i].Return = int64(10*i), int64(10*i+5)
	}
	return operations
}

// at moves an operation of a history to other times.
func at(history []Operation, i int, call, end int64) []Operation {
	history[i].Call, history[i].Return = call, end
	return history
}

var (
	created = Operation{Request: Request{Verb: Create, Value: "a"}, Response: Response{Outcome: OK, Version: 1, UID: "u", Value: "a"}}
	changed = Operation{Request: Request{Verb: Change, Value: "b"}, Response: Response{Outcome: OK, Version: 2, UID: "u", Value: "b"}}
	deleted = Operation{Request: Request{Verb: Delete}, Response: Response{Outcome: OK, UID: "u"}}
	missed  = Operation{Request: Request{Verb: Get}, Response: Response{Outcome: NotFound}}
)

func got(version uint64, uid, value string) Operation {
	return Operation{Request: Request{Verb: Get}, Response: Response{Outcome: OK, Version: version, UID: uid, Value: value}}
}

func with(verb Verb, request Request, response Response) Operation {
	request.Verb = verb
	return Operation{Request: request, Response: response}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		rule    string
		legal   bool
		history []Operation
	}{
		{"a read returns the last write", true, one(created, changed, got(2, "u", "b"), deleted, missed)},
		{"a read does not return an older write", false, one(created, changed, got(1, "u", "a"))},
		{"a read does not return a write that was never made", false, one(created, got(1, "u", "z"))},
		{"a read has the version of the write", false, one(created, got(2, "u", "a"))},
		{"a read has the UID of the object", false, one(created, got(1, "v", "a"))},
		{"a read does not miss an object", false, one(created, missed)},
		{"a read does not return a deleted object", false, one(created, deleted, got(1, "u", "a"))},
		{"a concurrent read may return either value", true, at(one(created, got(1, "u", "a"), changed), 1, 0, 30)},
		{"a concurrent read does not go back", false, at(one(created, changed, got(2, "u", "b"), got(1, "u", "a")), 1, 0, 100)},
		{"a create needs an absent object", false, one(created, with(Create, Request{Value: "b"}, Response{Outcome: OK, Version: 2, UID: "v", Value: "b"}))},
		{"a create is refused for an object only", false, one(with(Create, Request{Value: "b"}, Response{Outcome: Exists}))},
		{"a change needs an object", false, one(changed)},
		{"a change keeps the UID", false, one(created, with(Change, Request{Value: "b"}, Response{Outcome: OK, Version: 2, UID: "v", Value: "b"}))},
		{"versions increase", false, one(created, with(Change, Request{Value: "b"}, Response{Outcome: OK, Version: 1, UID: "u", Value: "b"}))},
		{"versions increase across a delete", false, one(created, changed, deleted, with(Create, Request{Value: "c"}, Response{Outcome: OK, Version: 2, UID: "v", Value: "c"}))},
		{"a response has the value of its request", false, one(created, with(Change, Request{Value: "b"}, Response{Outcome: OK, Version: 2, UID: "u", Value: "a"}))},
		{"a version precondition is checked", false, one(created, changed, with(Change, Request{Value: "c", IfVersion: 1}, Response{Outcome: OK, Version: 3, UID: "u", Value: "c"}))},
		{"a conflict needs another version", false, one(created, with(Change, Request{Value: "c", IfVersion: 1}, Response{Outcome: Conflict}))},
		{"a conflict with another version", true, one(created, changed, with(Change, Request{Value: "c", IfVersion: 1}, Response{Outcome: Conflict}), got(2, "u", "b"))},
		{"a UID precondition of a delete is checked", false, one(created, with(Delete, Request{IfUID: "v"}, Response{Outcome: OK, UID: "u"}))},
		{"a value precondition is checked", false, one(created, with(Change, Request{Value: "c", IfValue: "z"}, Response{Outcome: OK, Version: 3, UID: "u", Value: "c"}))},
		{"a value precondition fails for another value only", false, one(created, with(Change, Request{Value: "c", IfValue: "a"}, Response{Outcome: OtherContent}))},
		{"an apply creates", true, one(with(Apply, Request{Value: "a"}, Response{Outcome: OK, Version: 1, UID: "u", Value: "a", Created: true}), got(1, "u", "a"))},
		{"an apply reports that it created", false, one(created, with(Apply, Request{Value: "b"}, Response{Outcome: OK, Version: 2, UID: "u", Value: "b", Created: true}))},
		{"a delete needs an object", false, one(deleted)},
		{"a delete is refused without an object only", false, one(created, with(Delete, Request{}, Response{Outcome: NotFound}))},
		{"a delete of a collection leaves no object", false, one(created, with(Remove, Request{}, Response{Outcome: OK}), got(1, "u", "a"))},
		{"an unknown write may have happened", true, one(created, with(Change, Request{Value: "b"}, Response{Outcome: Unknown}), got(7, "u", "b"))},
		{"an unknown write may not have happened", true, one(created, with(Change, Request{Value: "b"}, Response{Outcome: Unknown}), got(1, "u", "a"))},
		{"an unknown write may happen later", true, one(created, with(Change, Request{Value: "b"}, Response{Outcome: Unknown}), got(1, "u", "a"), got(7, "u", "b"))},
		{"an unknown write happens once", false, one(created, with(Change, Request{Value: "b"}, Response{Outcome: Unknown}), got(7, "u", "b"), with(Change, Request{Value: "c"}, Response{Outcome: OK, Version: 8, UID: "u", Value: "c"}), got(9, "u", "b"))},
		{"an unknown write keeps its version", false, one(created, with(Change, Request{Value: "b"}, Response{Outcome: Unknown}), got(7, "u", "b"), got(8, "u", "b"))},
		{"an unknown write with a precondition may have failed", true, one(created, changed, with(Change, Request{Value: "c", IfVersion: 1}, Response{Outcome: Unknown}), got(2, "u", "b"))},
		{"an unknown write with a precondition that does not hold has failed", false, one(created, changed, with(Change, Request{Value: "c", IfVersion: 1}, Response{Outcome: Unknown}), got(3, "u", "c"))},
		{"an unknown delete does not create", false, one(with(Delete, Request{}, Response{Outcome: Unknown}), got(1, "u", "a"))},
	} {
		t.Run(c.rule, func(t *testing.T) {
			err := Check(c.history)
			if c.legal {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("not linearizable")))
		})
	}
}
