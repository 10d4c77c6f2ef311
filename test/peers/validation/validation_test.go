package validation

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"svc.dev/svc/test/peers/difference"
)

var (
	only   = flag.String("kinds", "", "regular expression of the kinds to compare, each as group/version, Kind=name; all when empty")
	report = flag.String("report", "", "file to write all differences to that are not in the list")
	again  = flag.String("again", "", "file that -report wrote: compare only the requests that it names")
)

// workers is the number of requests in flight.
const workers = 4

// patches are the content types of patches; each case uses the next one.
var patches = []string{
	"application/merge-patch+json", "application/strategic-merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml",
}

// request is a case with the verb that carries it.
type request struct {
	subject, method, path, contentType string
	body                               any
}

// TestBothServersAnswerTheSameToEveryField compares the answers to every case by
// create, update, the update of the status and one of the patches, all as dry
// runs. In differences.yaml, svclet is what svc answers, kubelet what kube-apiserver does.
func TestBothServersAnswerTheSameToEveryField(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("it compares the binary that $SVC names with kube-apiserver: run make test-peers-validation")
	}
	listed, err := difference.ReadList("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	svc, kube := start(t)
	known := readSchema(t, kube)
	chosen := choice(t)
	var found []difference.Difference
	total := 0
	for _, k := range bases(t) {
		if !pattern.MatchString(k.gvk.String()) {
			continue
		}
		if !create(t, k, svc, kube) {
			continue
		}
		requests := slices.DeleteFunc(requestsOf(t, k, known), func(r request) bool { return chosen != nil && !chosen[r.subject] })
		total += len(requests)
		found = append(found, compareAll(t, requests, svc, kube)...)
	}
	unexplained, obsolete := difference.Check(found, listed["validation"])
	classes := classify(unexplained)
	t.Logf("%d requests, %d differences, %d of them not in the list", total, len(found), len(unexplained))
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		t.Errorf("%d: %s", len(classes[class]), class)
	}
	if *only == "" && chosen == nil {
		for _, e := range obsolete {
			t.Errorf("in the list, but not so: of %q: %s: %s", e.Of, e.Path, e.Reason)
		}
	}
	if *report != "" {
		write(t, *report, classes)
	}
}

// choice returns the subjects that the file of -again names, or nil for all.
func choice(t *testing.T) map[string]bool {
	t.Helper()
	if *again == "" {
		return nil
	}
	content, err := os.ReadFile(*again)
	if err != nil {
		t.Fatal(err)
	}
	chosen := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if at := strings.LastIndex(line, separator); at > 0 {
			chosen[line[:at]] = true
		}
	}
	return chosen
}

// create creates the base on both servers, and reports whether the kind can be compared.
func create(t *testing.T, k *kind, svc, kube *server) bool {
	t.Helper()
	codes := map[*server]difference.Fields{}
	for _, s := range []*server{svc, kube} {
		fields, err := s.do(t.Context(), http.MethodPost, k.collection(), "application/json", k.base)
		if err != nil {
			t.Error(err)
			return false
		}
		codes[s] = fields
	}
	if codes[svc]["code"] != "success" || codes[kube]["code"] != "success" {
		t.Errorf("the base of %s: svc answers %v, kube-apiserver %v", k.gvk, codes[svc], codes[kube])
		return false
	}
	return true
}

// requestsOf returns the requests of all cases of a kind whose fields are known.
func requestsOf(t *testing.T, k *kind, known definitions) []request {
	t.Helper()
	goType, ok := scheme.Scheme.AllKnownTypes()[k.gvk]
	if !ok {
		t.Fatalf("no Go type of %s", k.gvk)
	}
	var all []request
	for i, c := range Cases(k.base, goType) {
		if !known.have(k.gvk, c.Steps) {
			continue // the field is newer than kube-apiserver
		}
		value, err := json.Marshal(c.Value)
		if err != nil {
			t.Fatal(err)
		}
		if len(value) > 40 {
			value = append(value[:40], "..."...)
		}
		what := fmt.Sprintf("%s %s=%s", k.gvk.GroupVersion().WithKind(k.gvk.Kind), c.Path, value)
		add := func(verb, method, path, contentType string, body any) {
			all = append(all, request{
				subject: verb + " " + what, method: method, path: path + "?dryRun=All", contentType: contentType, body: body,
			})
		}
		created := runtime.DeepCopyJSON(c.Object)
		if c.Path != "metadata.name" && k.Name != "ipaddresses" {
			put(created, []any{"metadata", "name"}, "new")
			if k.Name == "csidrivers" {
				put(created, []any{"metadata", "name"}, "new.example.com")
			}
		}
		add("create", http.MethodPost, k.collection(), "application/json", created)
		add("update", http.MethodPut, k.path(), "application/json", c.Object)
		if k.Status && strings.HasPrefix(c.Path, "status") {
			add("status", http.MethodPut, k.path()+"/status", "application/json", c.Object)
		}
		contentType := patches[i%len(patches)]
		path := k.path()
		var body any = c.Object
		switch contentType {
		case "application/json-patch+json":
			body = []any{map[string]any{"op": "replace", "path": "", "value": c.Object}}
			if top, _, _ := strings.Cut(strings.Split(c.Path, ".")[0], "["); c.Object[top] != nil {
				body = []any{map[string]any{"op": "add", "path": "/" + top, "value": c.Object[top]}}
			}
		case "application/apply-patch+yaml":
			all = append(all, request{
				subject: "apply " + what, method: http.MethodPatch, path: path + "?dryRun=All&fieldManager=a&force=true",
				contentType: contentType, body: body,
			})
			continue
		default:
		}
		add("patch", http.MethodPatch, path, contentType, body)
	}
	return all
}

// compareAll sends requests to both servers, and returns the differences of the answers.
func compareAll(t *testing.T, requests []request, svc, kube *server) []difference.Difference {
	t.Helper()
	results := make([][]difference.Difference, len(requests))
	errs := make([]error, len(requests))
	next := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range next {
				results[i], errs[i] = compareOne(t.Context(), requests[i], svc, kube)
			}
		})
	}
	for i := range requests {
		next <- i
	}
	close(next)
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", requests[i].subject, err)
		}
	}
	return slices.Concat(results...)
}

func compareOne(ctx context.Context, r request, svc, kube *server) ([]difference.Difference, error) {
	ours, err := svc.do(ctx, r.method, r.path, r.contentType, r.body)
	if err != nil {
		return nil, err
	}
	theirs, err := kube.do(ctx, r.method, r.path, r.contentType, r.body)
	if err != nil {
		return nil, err
	}
	all := difference.Between(r.subject, ours, theirs)
	if ours["code"] != theirs["code"] || ours["causes"] != theirs["causes"] { // the first that differs is what counts
		all = slices.DeleteFunc(all, func(d difference.Difference) bool {
			return ours["code"] != theirs["code"] && d.Path != "code" || ours["code"] == theirs["code"] && d.Path != "causes"
		})
		if ours["code"] != theirs["code"] {
			for i := range all {
				all[i].Svclet += " " + detail(ours)
				all[i].Kubelet += " " + detail(theirs)
			}
		}
	}
	return all, nil
}

func detail(f difference.Fields) string { return cmp.Or(f["messages"], f["message"]) }

// classify groups differences by how serious they are and by kind.
func classify(all []difference.Difference) map[string][]difference.Difference {
	classes := map[string][]difference.Difference{}
	for _, d := range all {
		var how string
		switch {
		case d.Path == "code" && strings.HasPrefix(d.Svclet, "success"):
			how = "1 svc accepts what Kubernetes refuses"
		case d.Path == "code" && strings.HasPrefix(d.Kubelet, "success"):
			how = "2 svc refuses what Kubernetes accepts"
		case d.Path == "code" || d.Path == "reason":
			how = "3 another code or reason"
		case d.Path == "causes":
			how = "4 other fields or types of causes"
		case strings.HasPrefix(d.Path, "object"):
			how = "6 another object"
		case d.Path == "warnings":
			how = "7 other warnings"
		default:
			how = "5 another message"
		}
		parts := strings.SplitN(d.Subject, " ", 4) // verb, group and version, kind, field
		class := how + ": " + parts[1] + " " + parts[2]
		classes[class] = append(classes[class], d)
	}
	return classes
}

// separator is between the subject and the path of a difference in a report.
const separator = " -> "

// write writes every difference to a file, class by class.
func write(t *testing.T, file string, classes map[string][]difference.Difference) {
	t.Helper()
	var text strings.Builder
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		fmt.Fprintf(&text, "== %s\n", class)
		for _, d := range classes[class] {
			fmt.Fprintf(&text, "%s%s%s\n\tsvc: %s\n\tkube: %s\n", d.Subject, separator, d.Path, d.Svclet, d.Kubelet)
		}
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
