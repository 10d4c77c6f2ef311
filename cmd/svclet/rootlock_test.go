package main

import (
	"strings"
	"testing"
)

func TestARootDirectoryIsOfOneAgent(t *testing.T) {
	dir := t.TempDir() + "/root"
	held, err := lockRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockRoot(dir); err == nil || !strings.HasPrefix(err.Error(), "--root-dir: "+dir+" is in use by another svclet") {
		t.Errorf("a second agent: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockRoot(dir)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
