package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheReferenceHasTheCommandsAndTheirFlags(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/svclet-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"reference"}, func(string) string { return "" }, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	if !bytes.Equal(page, out.Bytes()) {
		t.Errorf("docs/reference/svclet-commands.md is out of date, run make generate; it should be:\n%s", out.String())
	}
}
