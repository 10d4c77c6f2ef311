package access

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// TestBothServersCallWebhooksTheSame compares what becomes of requests for which there are
// webhooks, what these get, and which configurations may be written.
func TestBothServersCallWebhooksTheSame(t *testing.T) {
	backend := startBackend(t)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})
	compareAudited(t, "webhooks", steps(t, "webhooks.yaml", "BACKEND", backend.URL, "AUTHORITY", base64.StdEncoding.EncodeToString(authority)))
}

// TestBothServersEvaluatePoliciesTheSame compares what becomes of requests to which
// admission policies apply, and which policies and bindings may be written.
func TestBothServersEvaluatePoliciesTheSame(t *testing.T) {
	compareAudited(t, "policies", steps(t, "policies.yaml"))
}

// auditPolicy audits changes, with the patches of webhooks.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Request, verbs: [create, update, patch, delete, deletecollection]}]
`

// compareAudited sends requests to both servers, of one release, as one user, and
// compares the responses and the audit annotations.
func compareAudited(t *testing.T, about string, all []step) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	log := func(name string) string { return "--audit-log-path=" + filepath.Join(dir, name) }
	flags := []string{"--audit-policy-file=" + policy, launch.NoServiceAccounts}
	svc, kube := startEach(t, append(svcFlags("--release="+ofKube, log("svc")), flags...), append([]string{log("kube")}, flags...))
	for i := range all {
		all[i].auditID = fmt.Sprintf("step-%d", i)
		if all[i].User == "" {
			all[i].User, all[i].Groups = "operator", []string{"system:masters"}
		}
	}
	svc.audit, kube.audit = filepath.Join(dir, "svc"), filepath.Join(dir, "kube")
	compareAdmission(t, svc, kube, about, all)
}

// await sends a request again and again until its answer, or a field of its response, begins
// as it should.
func (s *server) await(t *testing.T, st step) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, launch.Patience, true, func(context.Context) (bool, error) {
		last = s.send(t, st)[cmp.Or(st.Of, "answer")]
		return strings.HasPrefix(last, st.Until), nil
	})
	if err != nil {
		t.Fatalf("%s: not %s, but %s", st.Path, st.Until, last)
	}
}

// compareAnnotations compares the audit annotations of the requests that have names.
func compareAnnotations(t *testing.T, svc, kube *server, all []step) []difference.Difference {
	t.Helper()
	last := all[len(all)-1].auditID
	ours, theirs := svc.audited(t, last), kube.audited(t, last)
	var found []difference.Difference
	for _, s := range all {
		if s.Is == "" {
			continue
		}
		if ours[s.auditID] == nil || theirs[s.auditID] == nil {
			t.Errorf("%s: no audit event", s.Is)
			continue
		}
		found = append(found, difference.Between(s.Is, ours[s.auditID], theirs[s.auditID])...)
	}
	return found
}

// audited returns the annotations of admission in the audit events of all requests, by
// audit ID. It returns when there is an event of the last one.
func (s *server) audited(t *testing.T, last string) map[string]difference.Fields {
	t.Helper()
	var events map[string]difference.Fields
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, launch.Patience, true, func(context.Context) (bool, error) {
		content, err := os.ReadFile(s.audit)
		if err != nil {
			return false, err
		}
		events, err = annotations(content)
		return events[last] != nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func annotations(log []byte) (map[string]difference.Fields, error) {
	events := map[string]difference.Fields{}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		fields := difference.Fields{}
		for key, value := range event.Annotations {
			if !strings.HasPrefix(key, "authorization.k8s.io/") && !strings.HasPrefix(key, "apiserver.latency.k8s.io/") {
				fields["annotation "+key] = anonymous(value)
			}
		}
		events[string(event.AuditID)] = fields
	}
	return events, nil
}
