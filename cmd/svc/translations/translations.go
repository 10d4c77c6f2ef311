// Package translations owns when the translations of kubectl are loaded. The library
// loads them with the first text that it translates, which is in the initialization of
// kubectl's packages, so in every start of svc.
package translations

import (
	"os"
	"path/filepath"
	"slices"

	"k8s.io/kubectl/pkg/util/i18n"
)

// Set is the error of setting when translations are loaded: they have been loaded
// already. It is set by the initialization of this package, which has to come before that
// of the packages with texts. Go initializes, in turns, the first package by import path
// whose imports are initialized (The Go Programming Language Specification, Program
// initialization): this one imports as little as possible, and those need packages that are
// initialized later. The test of package main checks that it stays so.
var Set = i18n.SetLoadTranslationsFunc(func() error {
	if !needed(os.Args) {
		return nil
	}
	return i18n.LoadTranslations("kubectl", nil)
})

// needed reports whether a command line may write texts of kubectl.
func needed(line []string) bool {
	return filepath.Base(line[0]) == "kubectl" || slices.Contains(line[1:], "kubectl")
}
