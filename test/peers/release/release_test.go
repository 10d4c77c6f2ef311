// Package release compares what svc serves at releases 1.36 and 1.28, by default and with
// all versions turned on, with the real kube-apiserver of that release: discovery, the
// fields of the OpenAPI documents, and what both answer to the creation of an object of
// each kind: defaults, warnings and the columns of its table. It needs the programs that
// hack/peers.sh builds.
package release

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// oracle is a real server and its release.
type oracle struct {
	release, program string
	// discovery is the version of aggregated discovery that it has.
	discovery string
}

var oracles = []oracle{
	{release: "1.36", program: "kube-apiserver", discovery: "v2"},
	{release: "1.28", program: "kube-apiserver-1.28", discovery: "v2beta1"},
}

// zoo has an object of each kind and version.
var zoo = filepath.Join("..", "..", "spec", "testdata", "zz_generated.zoo.yaml")

// server is one of the two.
type server struct {
	config *rest.Config
	oracle oracle
	// kinds are the resources that it serves, without subresources.
	kinds map[schema.GroupVersionKind]string
}

func TestSvcServesWhatKubeAPIServerServes(t *testing.T) {
	if os.Getenv("SVC") == "" {
		t.Skip("it compares the binary that $SVC names with kube-apiserver: run make test-peers-release")
	}
	for _, o := range oracles {
		t.Run(o.release, func(t *testing.T) { compare(t, o) })
	}
}

func compare(t *testing.T, o oracle) {
	svc, kube := start(t, o, "--runtime-config=api/all=true")
	list, err := difference.ReadList("differences-" + o.release + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]difference.Difference{
		"discovery": between(t, svc.discovery(t), kube.discovery(t)),
		"openapi":   between(t, svc.schemas(t), kube.schemas(t)),
	}
	ours, theirs := svc.create(t), kube.create(t)
	found["objects"] = between(t, ours.objects, theirs.objects)
	found["warnings"] = between(t, ours.warnings, theirs.warnings)
	found["tables"] = between(t, ours.tables, theirs.tables)
	defaultSvc, defaultKube := start(t, o)
	found["default"] = between(t, defaultSvc.discovery(t), defaultKube.discovery(t))
	for about, differences := range found {
		unexplained, obsolete := difference.Check(differences, list[about])
		for _, d := range unexplained {
			t.Errorf("%s: %v", about, d)
		}
		for _, e := range obsolete {
			t.Errorf("%s: no difference fits %+v: remove it", about, e)
		}
		t.Logf("%s: %d differences, %d without a reason", about, len(differences), len(unexplained))
	}
}

// start starts both servers, without controllers and without the admission of service
// accounts, with further flags.
func start(t *testing.T, o oracle, flags ...string) (svc, kube *server) {
	t.Helper()
	k, err := launch.UpKubeOf(t.Context(), t.TempDir(), o.program, append([]string{launch.NoServiceAccounts}, flags...)...)
	t.Cleanup(k.Stop)
	if err != nil {
		t.Fatal(err)
	}
	s, err := launch.Up(t.Context(), t.TempDir(), append([]string{
		"--release=" + o.release, "--controllers=", "--service-cluster-ip-range=10.96.0.0/16", launch.NoServiceAccounts, "--allow-privileged=false",
	}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return &server{config: s.Config, oracle: o}, &server{config: k.Config, oracle: o}
}

func (s *server) get(t *testing.T, path, accept string, into any) {
	t.Helper()
	resp, err := launch.Send(t.Context(), s.config, launch.Request{Method: http.MethodGet, Path: path, Accept: accept})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, resp.Status, resp.Body)
	}
	if err := json.Unmarshal([]byte(resp.Body), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// documents are what a server says, by subject.
type documents map[string]any

// between returns the differences of two servers' documents.
func between(t *testing.T, svc, kube documents) []difference.Difference {
	t.Helper()
	subjects := map[string]bool{}
	for _, all := range []documents{svc, kube} {
		for subject := range all {
			subjects[subject] = true
		}
	}
	var found []difference.Difference
	for _, subject := range slices.Sorted(func(yield func(string) bool) {
		for subject := range subjects {
			if !yield(subject) {
				return
			}
		}
	}) {
		fields := func(all documents) difference.Fields {
			value, ok := all[subject]
			if !ok {
				return difference.Fields{"": difference.Absent}
			}
			fields, err := difference.Of(value, func(_, text string) string { return text })
			if err != nil {
				t.Fatal(err)
			}
			return fields
		}
		_, inSvc := svc[subject]
		_, inKube := kube[subject]
		if inSvc != inKube {
			found = append(found, difference.Difference{Subject: subject, Path: "subject", Svclet: presence(inSvc), Kubelet: presence(inKube)})
			continue
		}
		found = append(found, difference.Between(subject, fields(svc), fields(kube))...)
	}
	return found
}

func presence(is bool) string {
	if is {
		return "present"
	}
	return difference.Absent
}

// discovery returns the resources of all versions, and the order of the versions.
func (s *server) discovery(t *testing.T) documents {
	t.Helper()
	accept := "application/json;g=apidiscovery.k8s.io;v=" + s.oracle.discovery + ";as=APIGroupDiscoveryList"
	all := documents{}
	s.kinds = map[schema.GroupVersionKind]string{}
	for _, root := range []string{"/api", "/apis"} {
		var list apidiscoveryv2.APIGroupDiscoveryList
		s.get(t, root, accept, &list)
		for _, group := range list.Items {
			if group.Name == "metrics.k8s.io" {
				continue // no API of kube-apiserver
			}
			var versions []string
			for _, version := range group.Versions {
				versions = append(versions, version.Version)
				for _, r := range version.Resources {
					gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
					if r.ResponseKind != nil {
						s.kinds[gv.WithKind(r.ResponseKind.Kind)] = r.Resource
					}
					r.Verbs = slices.Sorted(slices.Values(r.Verbs))
					for _, sub := range r.Subresources {
						slices.Sort(sub.Verbs)
						all[gv.String()+" "+r.Resource+"/"+sub.Subresource] = sub
					}
					r.Subresources = nil
					all[gv.String()+" "+r.Resource] = r
				}
			}
			all[group.Name+" versions"] = strings.Join(versions, " ")
		}
	}
	return all
}

// schemas returns the properties of the schemas of the kinds: types, formats, defaults,
// required ones and the values of enumerations.
func (s *server) schemas(t *testing.T) documents {
	t.Helper()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	s.get(t, "/openapi/v3", "", &index)
	all := documents{}
	for path, at := range index.Paths {
		if !strings.HasPrefix(path, "api") || strings.Contains(path, "metrics.k8s.io") {
			continue
		}
		var doc spec3.OpenAPI
		s.get(t, at.ServerRelativeURL, "", &doc)
		if doc.Components == nil {
			continue
		}
		for name, schema := range doc.Components.Schemas {
			properties := map[string]any{}
			for field, of := range schema.Properties {
				properties[field] = property(&of)
			}
			all[name] = map[string]any{"properties": properties, "required": strings.Join(schema.Required, " ")}
		}
	}
	return all
}

func property(s *spec.Schema) map[string]any {
	of := map[string]any{"type": strings.Join(s.Type, " "), "format": s.Format, "enum": fmt.Sprint(s.Enum), "ref": refOf(s)}
	if s.Default != nil {
		of["default"] = fmt.Sprint(s.Default)
	}
	if s.Items != nil && s.Items.Schema != nil {
		of["items"] = refOf(s.Items.Schema)
	}
	return of
}

func refOf(s *spec.Schema) string {
	ref := s.Ref.String()
	for i := range s.AllOf {
		ref += s.AllOf[i].Ref.String()
	}
	return ref
}

// answers are what a server answers to the creation of the zoo's objects.
type answers struct{ objects, warnings, tables documents }

// create creates the objects of the zoo that the server serves.
func (s *server) create(t *testing.T) answers {
	t.Helper()
	a := answers{documents{}, documents{}, documents{}}
	for _, obj := range readZoo(t) {
		gvk := schema.FromAPIVersionAndKind(fmt.Sprint(obj["apiVersion"]), fmt.Sprint(obj["kind"]))
		resource, ok := s.kinds[gvk]
		if !ok {
			continue
		}
		name := strings.TrimPrefix(gvk.GroupVersion().String()+" "+gvk.Kind, "/")
		metadata, _ := obj["metadata"].(map[string]any)
		path := collection(gvk.GroupVersion(), metadata, resource)
		object, warnings, created := s.post(t, path, obj, metadata, gvk)
		a.objects[name], a.warnings[name] = object, warnings
		if created {
			a.tables[name] = s.table(t, path, fmt.Sprint(metadata["name"]))
		}
	}
	return a
}

func collection(gv schema.GroupVersion, metadata map[string]any, resource string) string {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if ns, ok := metadata["namespace"]; ok {
		path += fmt.Sprint("/namespaces/", ns)
	}
	return path + "/" + resource
}

// post creates an object and returns the answer, its warnings, and whether a stored
// object was created.
func (s *server) post(t *testing.T, path string, obj, metadata map[string]any, gvk schema.GroupVersionKind) (answer any, warnings []string, created bool) {
	t.Helper()
	if name, ok := metadata["name"].(string); ok && !strings.Contains(name, ".") {
		metadata["name"] = fmt.Sprintf("%s-%.3s-%s", name, gvk.Group+"all", gvk.Version) // kinds of two groups may be the same objects
	}
	body, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := launch.Send(t.Context(), s.config, launch.Request{Method: http.MethodPost, Path: path, ContentType: "application/json", Body: string(body)})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(resp.Body), &object); err != nil {
		t.Fatalf("%s: %d %s", path, resp.Status, resp.Body)
	}
	return neutral(object), resp.Header.Values("Warning"), resp.Status == http.StatusCreated && metadata["name"] != nil
}

// administrators are the users of the two clients.
var administrators = strings.NewReplacer("svc-admin", "admin")

// random are texts that differ from one object, or one client, to the next.
var random = regexp.MustCompile(`X509SHA256=[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|10\.96\.\d+\.\d+`)

// neutral removes what differs from one server, or one object, to the next.
func neutral(object map[string]any) any {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			delete(metadata, field)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	var out any
	if err := json.Unmarshal([]byte(random.ReplaceAllString(administrators.Replace(string(text)), "*")), &out); err != nil {
		return err.Error()
	}
	return out
}

// table returns the columns of a collection, and the cells of an object.
func (s *server) table(t *testing.T, path, name string) any {
	t.Helper()
	var table metav1.Table
	s.get(t, path, "application/json;as=Table;g=meta.k8s.io;v=v1", &table)
	columns := map[string]any{}
	for i, c := range table.ColumnDefinitions {
		columns[c.Name] = map[string]any{"index": i, "type": c.Type, "format": c.Format, "priority": c.Priority, "description": c.Description}
	}
	cells := map[string]any{}
	for _, row := range table.Rows {
		var meta metav1.PartialObjectMetadata
		if json.Unmarshal(row.Object.Raw, &meta) != nil || meta.Name != name {
			continue
		}
		for i, c := range table.ColumnDefinitions {
			if c.Name != "Age" && c.Name != "TimeAdded" && i < len(row.Cells) {
				cells[c.Name] = random.ReplaceAllString(administrators.Replace(fmt.Sprint(row.Cells[i])), "*")
			}
		}
	}
	return map[string]any{"columns": columns, "cells": cells}
}

func readZoo(t *testing.T) []map[string]any {
	t.Helper()
	content, err := os.ReadFile(zoo)
	if err != nil {
		t.Fatal(err)
	}
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var all []map[string]any
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var obj map[string]any
		if err := yaml.Unmarshal(document, &obj); err != nil {
			t.Fatal(err)
		}
		if obj != nil {
			all = append(all, obj)
		}
	}
}
