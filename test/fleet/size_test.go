package fleet

import (
	"bytes"
	"os"
	"testing"

	"svc.dev/svc/test/launch"
)

// TestTheAgentHasNoMethodsThatItNeverCalls looks for the name of one: the linker keeps those
// of all types as soon as a method is looked up by a name that is not constant
// (docs/decisions/unreachable-methods.md).
func TestTheAgentHasNoMethodsThatItNeverCalls(t *testing.T) {
	program, err := launch.Svclet.Program()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const requests = "k8s.io/client-go/kubernetes/typed/certificates/v1.(*certificateSigningRequests)."
	for method, want := range map[string]bool{
		requests + "Create":         true, // else the names are not in the binary
		requests + "UpdateApproval": false,
	} {
		if got := bytes.Contains(binary, []byte(method)); got != want {
			t.Errorf("the agent has %s: %v, want %v", method, got, want)
		}
	}
}
