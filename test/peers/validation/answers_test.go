package validation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// server is one of the two API servers.
type server struct {
	host   string
	client *http.Client
	// names are the fields that it names otherwise than the API does.
	names []name
}

// name replaces what an expression matches in the path of a field.
type name struct{ Kube, API string }

func readNames(t *testing.T) []name {
	t.Helper()
	content, err := os.ReadFile("names.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []name
	if err := sigsyaml.UnmarshalStrict(content, &names); err != nil {
		t.Fatal(err)
	}
	return names
}

// rename replaces the names in the causes of a status.
func (s *server) rename(status *metav1.Status) {
	if status.Details == nil {
		return
	}
	for i := range status.Details.Causes {
		c := &status.Details.Causes[i]
		for _, n := range s.names {
			c.Field = regexp.MustCompile(n.Kube).ReplaceAllString(c.Field, n.API)
		}
	}
}

func newServer(t *testing.T, config *rest.Config) *server {
	t.Helper()
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{host: config.Host, client: client}
}

// do sends an object, and returns the fields of the answer that are compared:
// of a failure the code, the reason and each cause, of a success the object, and
// of both the warnings.
func (s *server) do(ctx context.Context, method, path, contentType string, object any) (difference.Fields, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	warnings := strings.Join(resp.Header.Values("Warning"), "; ")
	if resp.StatusCode < http.StatusMultipleChoices {
		fields, err := objectFields(content)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w: %s", method, path, err, content)
		}
		fields["code"], fields["warnings"] = "success", warnings
		return fields, nil
	}
	var status metav1.Status
	if err := json.Unmarshal(content, &status); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", method, path, err, content)
	}
	s.rename(&status)
	fields := fieldsOf(status)
	fields["warnings"] = warnings
	return fields, nil
}

// objectFields returns the fields of an object, each after "object", without those that
// differ from one object to the next.
func objectFields(content []byte) (difference.Fields, error) {
	var object map[string]any
	if err := json.Unmarshal(content, &object); err != nil {
		return nil, err
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			delete(metadata, field)
		}
	}
	return difference.Of(map[string]any{"object": object}, func(_, text string) string {
		if _, err := time.Parse(time.RFC3339, text); err == nil && !strings.HasPrefix(text, "2026-01-02T03:04:05") { // which cases have
			return "TIME"
		}
		return random.ReplaceAllString(administrators.Replace(uid.ReplaceAllString(text, "UID")), "RANDOM")
	})
}

// administrators are the users of the two clients.
var administrators = strings.NewReplacer("svc-admin", "admin")

// random matches the digests of the clients' certificates and allocated addresses.
var random = regexp.MustCompile(`X509SHA256=[0-9a-f]{64}|\b10\.96\.\d+\.\d+\b`)

func fieldsOf(status metav1.Status) difference.Fields {
	fields := difference.Fields{"code": fmt.Sprint(status.Code), "reason": string(status.Reason)}
	if status.Details == nil || len(status.Details.Causes) == 0 {
		fields["message"] = neutral(status.Message)
		return fields
	}
	var causes, messages []string
	for _, c := range status.Details.Causes {
		causes = append(causes, c.Field+" "+string(c.Type))
		messages = append(messages, c.Field+": "+neutral(c.Message))
	}
	slices.Sort(causes)
	slices.Sort(messages)
	// kube-apiserver calls some validation twice and reports the same cause twice.
	causes, messages = slices.Compact(causes), slices.Compact(messages)
	fields["causes"], fields["messages"] = strings.Join(causes, ", "), strings.Join(messages, "; ")
	return fields
}

var (
	// uid matches the UIDs that the servers give to the bases.
	uid = regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	// key matches the key in etcd that is in some messages.
	key = regexp.MustCompile(`Key: [^,]+,`)
	// whole matches the begin of an invalid value that is not a scalar.
	whole = regexp.MustCompile(`(Invalid|Unsupported|Duplicate) value: (\[\]\w[\w.]*|map\[\w[\w.\[\]]*|\w+\.\w+)?[{\[]`)
)

// neutral replaces what the two servers cannot have in common: UIDs and keys in etcd; values that are
// objects and differences of them, which are JSON in svc's messages, and Go structs,
// some as JSON with Go's names, in those of kube-apiserver.
func neutral(message string) string {
	message, _, _ = strings.Cut(message, "\n")
	if at := whole.FindStringIndex(message); at != nil {
		if end := closing(message[at[1]-1:]); end > 0 {
			message = message[:at[0]] + "value: (an object)" + message[at[1]-1+end:]
		}
	}
	return uid.ReplaceAllString(key.ReplaceAllString(message, "Key: KEY,"), "UID")
}

// closing returns the index after the bracket that closes the first one, or 0.
func closing(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// kind is a kind with its base object, in the newest version of the release.
type kind struct {
	*resource.Kind
	gvk  schema.GroupVersionKind
	base map[string]any
}

func (k *kind) collection() string {
	path := "/apis/" + k.gvk.GroupVersion().String()
	if k.gvk.Group == "" {
		path = "/api/" + k.gvk.Version
	}
	if k.Namespaced {
		path += fmt.Sprintf("/namespaces/%s", lookup(k.base, []any{"metadata", "namespace"}))
	}
	return path + "/" + k.Name
}

func (k *kind) path() string {
	name := lookup(k.base, []any{"metadata", "name"})
	return fmt.Sprintf("%s/%s", k.collection(), name)
}

// bases reads bases.yaml.
func bases(t *testing.T) []*kind {
	t.Helper()
	content, err := os.ReadFile("bases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[schema.GroupVersionKind]*resource.Kind{}
	for _, k := range apis.Kinds() {
		for _, gvk := range k.GVKs() {
			byKind[gvk] = k
		}
	}
	var all []*kind
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		object = asJSON(t, object)
		gvk := schema.FromAPIVersionAndKind(fmt.Sprint(object["apiVersion"]), fmt.Sprint(object["kind"]))
		declared, ok := byKind[gvk]
		if !ok {
			t.Fatalf("bases.yaml: unknown kind %s", gvk)
		}
		all = append(all, &kind{Kind: declared, gvk: gvk, base: object})
	}
}

// asJSON returns an object with the number types that runtime.DeepCopyJSON takes.
func asJSON(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(content, &out); err != nil {
		t.Fatal(err)
	}
	return runtime.DeepCopyJSON(out)
}

// gates are the features that are off by default at the compared release: otherwise both
// servers would drop the fields unseen.
var gates = []string{
	"ClusterTrustBundle", "ClusterTrustBundleProjection", "ContainerStopSignals", "CoordinatedLeaderElection", "DRADeviceTaintRules",
	"DRAListTypeAttributes", "DRANodeAllocatableResources", "GenericWorkload", "ImageVolumeWithDigest", "MaxUnavailableStatefulSet",
	"PodCertificateRequest", "SELinuxMount", "StorageVersionMigrator", "VolumeLimitScaling",
}

// start starts both servers, without controllers and without the admission of service accounts.
func start(t *testing.T) (svc, kube *server) {
	t.Helper()
	for _, program := range []string{"kube-apiserver", "etcd"} {
		if _, err := launch.Peer(program); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	enabled := "--feature-gates=" + strings.Join(gates, "=true,") + "=true"
	k, err := launch.UpKube(t.Context(), dir, launch.NoServiceAccounts, "--runtime-config=api/all=true", enabled)
	t.Cleanup(k.Stop)
	if err != nil {
		t.Fatal(err)
	}
	s, err := launch.Up(t.Context(), t.TempDir(), "--release=1.36", "--controllers=", "--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=false", "--runtime-config=api/all=true", enabled)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	kube = newServer(t, k.Config)
	kube.names = readNames(t)
	return newServer(t, s.Config), kube
}
