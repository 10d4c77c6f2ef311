package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operation is a request with its response, and the times of both in nanoseconds.
// The time of the response of an unknown outcome does not count.
type Operation struct {
	Client       int
	Request      Request
	Response     Response
	Call, Return int64
}

// checkTimeout bounds the search for an order of the operations of one object.
const checkTimeout = 30 * time.Second

// Check returns an error that names an object whose operations cannot be put into an
// order in which each has the response of the specification, and follows those that
// had returned before its call.
func Check(operations []Operation) error {
	byKey := map[string][]porcupine.Operation{}
	for _, o := range operations {
		end := o.Return
		if o.Response.Outcome == Unknown {
			end = math.MaxInt64
		}
		byKey[o.Request.Key] = append(byKey[o.Request.Key], porcupine.Operation{
			ClientId: o.Client, Input: o.Request, Output: o.Response, Call: o.Call, Return: end,
		})
	}
	for key, operations := range byKey {
		slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch result, info := porcupine.CheckOperationsVerbose(specification, operations, checkTimeout); result {
		case porcupine.Illegal:
			return fmt.Errorf("the %d operations on %s are not linearizable:\n%s", len(operations), key, describe(operations, info))
		case porcupine.Unknown:
			return fmt.Errorf("the order of the %d operations on %s was not found within %s", len(operations), key, checkTimeout)
		}
	}
	return nil
}

var specification = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(from, input, output any) []any {
		var to []any
		for _, s := range step(from.(state), input.(Request), output.(Response)) {
			to = append(to, s)
		}
		return to
	},
}).ToModel()

// describe lists the operations with their positions in the longest order that
// porcupine found, which the first operation without one cannot follow.
func describe(operations []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, order := range info.PartialLinearizations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	var text strings.Builder
	for i, o := range operations {
		fmt.Fprintf(&text, "%4d  %d..%d client %d %+v -> %+v\n", slices.Index(longest, i)+1, o.Call, o.Return, o.ClientId, o.Input, o.Output)
	}
	return text.String()
}
