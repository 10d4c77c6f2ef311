// Package celquantity owns the limit of decimal exponents in quantities that CEL expressions read.
package celquantity

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"svc.dev/svc/internal/exponent"
)

var (
	mutex   sync.Mutex
	limited = map[string]bool{} // by the version of the environment
)

// Limit makes the functions quantity and isQuantity of CEL refuse numbers with exponents of more
// than four digits (package exponent): the library's compute with all digits, and no limit of
// costs interrupts them. It changes the library's environments of
// [environment.DefaultCompatibilityVersion], which all expressions of the API extend, and is to
// be called before any of them is compiled. Further calls have no effect.
func Limit() error {
	mutex.Lock()
	defer mutex.Unlock()
	version := environment.DefaultCompatibilityVersion()
	if limited[version.String()] {
		return nil
	}
	set := environment.MustBaseEnvSet(version)
	var errs []error
	for _, env := range []interface {
		Functions() map[string]*decls.FunctionDecl
	}{set.NewExpressionsEnv(), set.StoredExpressionsEnv()} {
		functions := env.Functions()
		// Of new expressions, a release without quantities has none.
		for name, binding := range map[string]func(string) ref.Val{"quantity": quantity, "isQuantity": isQuantity} {
			if f := functions[name]; f != nil {
				errs = append(errs, rebind(f, binding))
			}
		}
	}
	limited[version.String()] = true
	return errors.Join(errs...)
}

// rebind replaces the implementation of a function of a string.
func rebind(f *decls.FunctionDecl, binding func(string) ref.Val) error {
	overloads := f.OverloadDecls()
	if len(overloads) != 1 {
		return fmt.Errorf("CEL's function %s has %d overloads, want one", f.Name(), len(overloads))
	}
	old := overloads[0]
	other, err := decls.NewFunction(f.Name(), decls.Overload(old.ID(), old.ArgTypes(), old.ResultType(), decls.UnaryBinding(func(arg ref.Val) ref.Val {
		text, ok := arg.Value().(string)
		if !ok {
			return types.MaybeNoSuchOverloadErr(arg)
		}
		return binding(text)
	})))
	if err != nil {
		return fmt.Errorf("CEL's function %s: %w", f.Name(), err)
	}
	return f.AddOverload(other.OverloadDecls()[0]) // which replaces one of the same name and types
}

func quantity(text string) ref.Val {
	q, err := exponent.Parse(text)
	if err != nil {
		return types.WrapErr(err)
	}
	return apiservercel.Quantity{Quantity: &q}
}

func isQuantity(text string) ref.Val {
	_, err := exponent.Parse(text)
	return types.Bool(err == nil)
}
