// Package leaks fails tests that leave goroutines behind. It waits longer than
// goleak's own checks, which allow half a second: too little on a slow machine.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines may take to end.
const timeout = time.Minute

// Main runs a package's tests, and fails if goroutines are left after the last
// one. It is to be all that TestMain does.
func Main(m *testing.M, ignored ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(ignored); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails the test if there are goroutines.
func None(t testing.TB, ignored ...goleak.Option) {
	t.Helper()
	if err := find(ignored); err != nil {
		t.Error(err)
	}
}

func find(ignored []goleak.Option) error {
	for end := time.Now().Add(timeout); ; {
		err := goleak.Find(ignored...) // waits a moment itself
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
