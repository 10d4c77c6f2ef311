package main

import (
	"fmt"
	"os"
	"testing"

	"svc.dev/svc/apiserver/gates"
)

// TestMain registers the feature gates, as main does.
func TestMain(m *testing.M) {
	if err := gates.Set(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
