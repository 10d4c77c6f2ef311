// Package oracle owns the conversation of tests with programs that are built from
// Kubernetes' own code, and answer what it would do.
package oracle

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Oracle is a program that reads questions and writes an answer to each, as JSON.
type Oracle struct {
	questions *json.Encoder
	answers   *json.Decoder
}

// Start starts the program that $ORACLE names, until the end of the test, which is
// skipped if there is none. source is what the program is built from.
func Start(t *testing.T, source string) *Oracle {
	t.Helper()
	program := os.Getenv("ORACLE")
	if program == "" {
		t.Skipf("ORACLE does not name the program of %s", source)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return &Oracle{json.NewEncoder(in), json.NewDecoder(out)}
}

// Ask sets answer to what the program answers to the question.
func (o *Oracle) Ask(t *testing.T, question, answer any) {
	t.Helper()
	if err := o.questions.Encode(question); err != nil {
		t.Fatal(err)
	}
	if err := o.answers.Decode(answer); err != nil {
		t.Fatal(err)
	}
}
