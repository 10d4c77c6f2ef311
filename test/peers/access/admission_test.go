package access

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/test/peers/difference"
)

// plugins are those that are off by default and whose effects do not exclude each other.
const plugins = "NodeRestriction,AlwaysPullImages,DenyServiceExternalIPs,ExtendedResourceToleration,LimitPodHardAntiAffinityTopology," +
	"NamespaceExists,OwnerReferencesPermissionEnforcement,PodNodeSelector,PodTolerationRestriction"

// step is a request of admission.yaml. Its response is compared if it has a name.
type step struct {
	// Is says which plugin does what; a step without it prepares others.
	Is string `json:"is"`
	// Method is POST by default; User is impersonated, with Groups.
	Method, User string
	Groups       []string
	// Path is that of the collection for a POST, otherwise that of the object.
	Path, ContentType string
	Body              map[string]any
}

// TestBothServersAdmitTheSame compares what each admission plugin accepts, changes and refuses.
func TestBothServersAdmitTheSame(t *testing.T) {
	svc, kube := start(t, "--enable-admission-plugins="+plugins, "--allow-privileged=true")
	var found []difference.Difference
	all := steps(t)
	for _, s := range all {
		ours, theirs := svc.send(t, s), kube.send(t, s)
		if s.Is == "" {
			for name, fields := range map[string]difference.Fields{"svc": ours, "kube-apiserver": theirs} {
				if fields["answer"] != "success" {
					t.Fatalf("%s %s: %s answers %v", s.Method, s.Path, name, fields)
				}
			}
			continue
		}
		found = append(found, difference.Between(s.Is, ours, theirs)...)
	}
	report(t, "admission", found)
	t.Logf("%d requests", len(all))
}

func steps(t *testing.T) []step {
	t.Helper()
	content, err := os.ReadFile("admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []step
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var s step
		if err := sigsyaml.UnmarshalStrict(document, &s); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, s)
	}
}

// send sends the request of a step, and returns the fields of the response that are compared.
func (s *server) send(t *testing.T, st step) difference.Fields {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: st.User, Groups: st.Groups}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	body, err := json.Marshal(st.Body)
	if err != nil {
		t.Fatal(err)
	}
	method := http.MethodPost
	if st.Method != "" {
		method = st.Method
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+st.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if st.ContentType != "" {
		req.Header.Set("Content-Type", st.ContentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	fields := difference.Fields{"warnings": strings.Join(resp.Header.Values("Warning"), "; ")}
	if resp.StatusCode >= http.StatusMultipleChoices {
		var status metav1.Status
		if err := json.Unmarshal(content, &status); err != nil {
			t.Fatalf("%s: %s", st.Path, content)
		}
		fields["answer"] = fmt.Sprintf("%d %s %s", status.Code, status.Reason, anonymous(status.Message))
		return fields
	}
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, ownEach := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation"} {
			delete(metadata, ownEach)
		}
	}
	of, err := difference.Of(object, func(_, text string) string { return anonymous(text) })
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range of {
		fields[field] = value
	}
	fields["answer"] = "success"
	return fields
}

// own matches what each server chooses itself: UIDs, and addresses of services.
var own = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b10\.96\.\d+\.\d+\b`)

func anonymous(text string) string { return own.ReplaceAllString(text, "OWN") }
