package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// auditPolicy records config maps with their content, and nothing else.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
{"level": "RequestResponse", "namespaces": ["default"], "resources": [{"group": "", "resources": ["configmaps"]}]}, {"level": "None"}]}`

const (
	auditedWriters  = 16
	auditedRequests = 25 // of each writer
)

// stages counts the recorded events by the name of the object and the stage.
type stages struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *stages) record(e auditv1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]int{}
	}
	name := e.ObjectRef.Name
	if e.Stage == auditv1.StageRequestReceived {
		// The name of an object to be created is not known before its body is read.
		name = ""
	}
	s.count[string(e.Stage)+" "+name]++
	if e.Stage == auditv1.StageResponseComplete && (e.RequestObject == nil || e.ResponseObject == nil || e.ResponseStatus.Code != http.StatusCreated) {
		s.count["incomplete "+name]++
	}
}

// check reports events that are missing, or that were recorded twice.
func (s *stages) check(t *testing.T, names []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.count["RequestReceived "]; n != len(names) {
		t.Errorf("%d requests were recorded when they were received, want %d", n, len(names))
	}
	delete(s.count, "RequestReceived ")
	missing := 0
	for _, name := range names {
		if s.count["ResponseComplete "+name] == 0 {
			missing++
		} else if s.count["ResponseComplete "+name]--; s.count["ResponseComplete "+name] == 0 {
			delete(s.count, "ResponseComplete "+name)
		}
	}
	if missing > 0 {
		t.Errorf("of %d responses, %d were not recorded", len(names), missing)
	}
	if len(s.count) > 0 {
		t.Errorf("recorded besides: %v", s.count)
	}
}

// writeAudited makes the requests, and returns the names of their objects.
func writeAudited(t *testing.T, r *running) []string {
	t.Helper()
	var names []string
	var writers sync.WaitGroup
	value := strings.Repeat("x", 4<<10)
	for w := range auditedWriters {
		for i := range auditedRequests {
			names = append(names, fmt.Sprintf("w%d-%d", w, i))
		}
		mine := names[len(names)-auditedRequests:]
		writers.Go(func() {
			for _, name := range mine {
				body := fmt.Sprintf(`{"metadata": {"name": %q}, "data": {"a": %q}}`, name, value)
				if code, answer := r.do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", body, false); code != http.StatusCreated {
					t.Errorf("%s: %d %s", name, code, answer)
				}
			}
		})
	}
	writers.Wait()
	return names
}

func audited(t *testing.T, configure func(*genericoptions.AuditOptions)) *options.Options {
	t.Helper()
	o, _ := newOptions(t)
	o.Audit.PolicyFile = write(t, auditPolicy)
	configure(o.Audit)
	return o
}

func TestTheAuditLogHasEveryRequestUnderLoad(t *testing.T) {
	for _, mode := range []string{"blocking", "batch"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			o := audited(t, func(a *genericoptions.AuditOptions) {
				a.LogOptions.Path = filepath.Join(dir, "audit.log")
				a.LogOptions.MaxSize = 1 // in MB, so that files are rotated
				a.LogOptions.BatchOptions.Mode = mode
			})
			r := start(t, o)
			names := writeAudited(t, r)
			r.stop(t) // also a batch is written by then
			files, err := filepath.Glob(filepath.Join(dir, "audit*.log"))
			if err != nil || len(files) < 2 {
				t.Fatalf("%v, %v: want several files", files, err)
			}
			var seen stages
			for _, file := range files {
				for _, e := range auditEvents(t, file) {
					seen.record(e)
				}
			}
			seen.check(t, names)
		})
	}
}

// auditEvents returns the events of a log.
func auditEvents(t *testing.T, file string) []auditv1.Event {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []auditv1.Event
	for lines := json.NewDecoder(f); ; {
		var e auditv1.Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return events
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		}
		events = append(events, e)
	}
}

// auditHook starts a backend that is slow, and refuses each list of events at first. It
// returns a kubeconfig.
func auditHook(t *testing.T, seen *stages) string {
	t.Helper()
	var refused sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(req.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		first := list.Items[0]
		if _, before := refused.LoadOrStore(string(first.AuditID)+string(first.Stage), true); !before {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		delay(req.Context(), 10*time.Millisecond)
		for _, e := range list.Items {
			seen.record(e)
		}
	}))
	t.Cleanup(server.Close)
	return write(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`, server.URL))
}

// delay is how slow a backend is.
func delay(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

func TestASlowAuditWebhookThatRefusesAtFirstGetsEveryRequestUnderLoad(t *testing.T) {
	for _, mode := range []string{"blocking", "batch"} {
		t.Run(mode, func(t *testing.T) {
			var seen stages
			o := audited(t, func(a *genericoptions.AuditOptions) {
				a.WebhookOptions.ConfigFile = auditHook(t, &seen)
				a.WebhookOptions.InitialBackoff = 10 * time.Millisecond
				a.WebhookOptions.BatchOptions.Mode = mode
			})
			r := start(t, o)
			names := writeAudited(t, r)
			r.stop(t)
			seen.check(t, names)
		})
	}
}

// TestAuditLevelRequestAndStageResponseStarted records requests without their responses,
// and a watch when it begins.
func TestAuditLevelRequestAndStageResponseStarted(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	o, _ := newOptions(t)
	o.Audit.PolicyFile = write(t, `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
		{"level": "Request", "users": ["admin"], "resources": [{"group": "", "resources": ["configmaps"]}]}, {"level": "None"}]}`)
	o.Audit.LogOptions.Path = log
	r := start(t, o)
	const path = "/api/v1/namespaces/default/configmaps"
	if code, body := r.do(t, http.MethodPost, path, `{"metadata": {"name": "a"}, "data": {"k": "v"}}`, false); code != http.StatusCreated {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := r.get(t, path+"?watch=true&timeoutSeconds=1", false); code != http.StatusOK || !strings.Contains(body, `"name":"a"`) {
		t.Fatalf("%d %s", code, body)
	}
	r.stop(t)
	var got []string
	for _, e := range auditEvents(t, log) {
		got = append(got, fmt.Sprintf("%s %s %s", e.Verb, e.Level, e.Stage))
		if (e.RequestObject != nil) != (e.Verb == "create") || e.ResponseObject != nil {
			t.Errorf("%s: request %v, response %v", got[len(got)-1], e.RequestObject, e.ResponseObject)
		}
		if e.Verb == "create" && !strings.Contains(string(e.RequestObject.Raw), `"data":{"k":"v"}`) {
			t.Errorf("the request is %s", e.RequestObject.Raw)
		}
	}
	if want := []string{"create Request ResponseComplete", "watch Request ResponseStarted", "watch Request ResponseComplete"}; !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
}

// TestAuditEventsNameCredentialsAsTheReleaseDoes requests a token and uses it: the first
// event names the token that was issued, and the second has it in the user's extra fields.
func TestAuditEventsNameCredentialsAsTheReleaseDoes(t *testing.T) {
	const issued, credential = "authentication.kubernetes.io/issued-credential-id", "authentication.kubernetes.io/credential-id"
	for served, told := range map[string]bool{"1.28": false, "1.29": false, "1.30": true} {
		t.Run(served, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "audit.log")
			s := newStage(t, "", func(o *options.Options) {
				var err error
				if o.Release, err = release.Parse(served); err != nil {
					t.Fatal(err)
				}
				o.Audit.PolicyFile = write(t, `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`)
				o.Audit.LogOptions.Path = log
			})
			const accounts = "/api/v1/namespaces/default/serviceaccounts"
			s.must(http.MethodPost, accounts, `{"metadata": {"name": "robot"}}`)
			var answer struct{ Status struct{ Token string } }
			if err := json.Unmarshal([]byte(s.must(http.MethodPost, accounts+"/robot/token", `{}`)), &answer); err != nil {
				t.Fatal(err)
			}
			if code, body := s.request(answer.Status.Token, http.MethodPost, selfReview, `{}`, nil); code != http.StatusCreated {
				t.Fatalf("%d %s", code, body)
			}
			s.stop(t)
			var given, used string
			for _, e := range auditEvents(t, log) {
				if ref := e.ObjectRef; ref != nil && ref.Subresource == "token" {
					given = e.Annotations[issued]
				}
				if e.User.Username == "system:serviceaccount:default:robot" {
					used = strings.Join(e.User.Extra[credential], " ")
				}
			}
			if given != used || strings.HasPrefix(given, "JTI=") != told {
				t.Errorf("release %s: issued %q, used %q, want it told: %v", served, given, used, told)
			}
		})
	}
}
