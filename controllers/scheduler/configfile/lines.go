package configfile

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/internal/configlines"
)

// fields returns errors with their lines.
func fields(file *configlines.File, list field.ErrorList) []error {
	errs := make([]error, len(list))
	for i, err := range list {
		errs[i] = fmt.Errorf(":%d: %w", file.Line(err.Field), err)
	}
	return errs
}

// decoding returns the errors of a decoder, with their lines if they name a field.
func decoding(file *configlines.File, err error) []error {
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return []error{fmt.Errorf(": %w", err)}
	}
	var errs []error
	for _, err := range strict.Errors() {
		if path, found := cutUnknown(err.Error()); found {
			errs = append(errs, fmt.Errorf(":%d: %w", file.Line(path), err))
			continue
		}
		errs = append(errs, fmt.Errorf(": %w", err))
	}
	return errs
}
