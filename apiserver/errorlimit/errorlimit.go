// Package errorlimit owns how many errors of an invalid object a response lists. The library
// adds one after the other to the message about them, which takes time quadratic in their
// number: for tens of thousands more than the time limit of the request.
package errorlimit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Max is the number of errors of one object that are listed.
const Max = 100

// First returns the first Max errors, and if there are more one that has the number of the
// others. unlisted is the number of errors that errs does not have.
func First(errs field.ErrorList, unlisted int) field.ErrorList {
	if len(errs) <= Max {
		return errs
	}
	next := errs[Max]
	others := &field.Error{
		Type: next.Type, Field: next.Field, BadValue: field.OmitValueType{},
		Detail: fmt.Sprintf("and %d more errors of this object", len(errs)-Max+unlisted),
	}
	return append(errs[:Max:Max], others)
}
