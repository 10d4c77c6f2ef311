package spec

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
	"svc.dev/svc/test/launch"
)

// releasesVariable names the releases to try, separated by commas, or "all".
const releasesVariable = "SVC_RELEASES"

// triedReleases are the oldest one, one with removed versions, and the newest one, unless
// the variable names others.
func triedReleases() []releases.Release {
	names := os.Getenv(releasesVariable)
	if names == "" {
		return []releases.Release{releases.Oldest, 21, releases.Newest}
	}
	var all []releases.Release
	for r := releases.Oldest; r <= releases.Newest; r++ {
		if names == "all" || slices.Contains(strings.Split(names, ","), r.String()) {
			all = append(all, r)
		}
	}
	return all
}

// connections are kinds of bodies of connections, which are no objects.
var connections = []string{"NodeProxyOptions", "PodAttachOptions", "PodExecOptions", "PodPortForwardOptions", "PodProxyOptions", "ServiceProxyOptions"}

// notServed are kinds of the table that are the bodies of subresources and that discovery does
// not name at every release of the table.
var notServed = map[string]string{
	"v1 EphemeralContainers":                "the body of a subresource that was alpha",
	"autoscaling/v1 Scale":                  "of scale",
	"policy/v1beta1 Eviction":               "of pods/eviction, which names policy/v1 since 1.22",
	"authentication.k8s.io/v1 TokenRequest": "of serviceaccounts/token",
}

// refusedInZoo are the objects of the zoo that refer to objects which do not exist, or
// that need proofs, by kind, with the code of the answer.
var refusedInZoo = map[string]int{"Binding": 404, "PodCertificateRequest": 422}

// readZoo returns the objects of the zoo.
func readZoo() []object {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("testdata", "zz_generated.zoo.yaml"))
	Expect(err).NotTo(HaveOccurred())
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var zoo []object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return zoo
		}
		Expect(err).NotTo(HaveOccurred())
		var obj object
		Expect(yaml.Unmarshal(document, &obj)).To(Succeed())
		if obj != nil {
			zoo = append(zoo, obj)
		}
	}
}

// servedKinds returns the resources of kinds that a server serves.
func servedKinds(config *launch.Server) map[schema.GroupVersionKind]metav1.APIResource {
	GinkgoHelper()
	client, err := kubernetes.NewForConfig(config.Config)
	Expect(err).NotTo(HaveOccurred())
	var lists []*metav1.APIResourceList
	Eventually(func() error { // metrics.k8s.io is registered after the start
		var err error
		_, lists, err = client.Discovery().ServerGroupsAndResources()
		return err
	}).Should(Succeed())
	kinds := map[schema.GroupVersionKind]metav1.APIResource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range list.APIResources {
			isBody := r.Kind == "TokenRequest" || r.Kind == "Scale" || r.Kind == "Eviction"
			if strings.HasSuffix(r.Name, "/status") || strings.Contains(r.Name, "/") && !isBody {
				continue
			}
			of := gv
			if r.Version != "" {
				of = schema.GroupVersion{Group: r.Group, Version: r.Version}
			}
			kinds[of.WithKind(r.Kind)] = r
		}
	}
	return kinds
}

// zooRequest returns the request that creates an object of the zoo.
func zooRequest(obj object, served map[schema.GroupVersionKind]metav1.APIResource) launch.Request {
	GinkgoHelper()
	gvk := schema.FromAPIVersionAndKind(obj["apiVersion"].(string), obj["kind"].(string))
	metadata, _ := obj["metadata"].(object)
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	if r, ok := served[gvk]; ok {
		plural.Resource = r.Name
	}
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	if ns, ok := metadata["namespace"]; ok {
		path += fmt.Sprint("/namespaces/", ns)
	}
	path += "/" + plural.Resource
	if name, ok := metadata["name"].(string); ok {
		if strings.Contains(name, ".") { // another name is not possible, and another version has it
			path += "?dryRun=All"
		} else {
			metadata["name"] = fmt.Sprintf("%s-%.3s-%s", name, gvk.Group+"all", gvk.Version) // kinds of two groups may be the same objects
		}
	}
	body, err := json.Marshal(obj)
	Expect(err).NotTo(HaveOccurred())
	return launch.Request{Method: "POST", Path: path, ContentType: "application/json", Body: string(body)}
}

// tryZoo creates each object of the zoo, and returns what differs from the table. all reports
// whether kinds that are off by default are served.
func tryZoo(ctx context.Context, s *launch.Server, table *releases.Table, r releases.Release, all bool) []string {
	GinkgoHelper()
	served := servedKinds(s)
	var wrong []string
	for _, obj := range readZoo() {
		gvk := schema.FromAPIVersionAndKind(obj["apiVersion"].(string), obj["kind"].(string))
		kind := table.Kind(gvk)
		Expect(kind).NotTo(BeNil(), "%v", gvk)
		code := 201
		switch refused, isRefused := refusedInZoo[gvk.Kind]; {
		case !kind.ServedAt(r) || kind.Off && (!all || leftOut(kind)):
			code = 404
		case isRefused:
			code = refused
		}
		resp, err := launch.Send(ctx, s.Config, zooRequest(obj, served))
		Expect(err).NotTo(HaveOccurred())
		if resp.Status != code {
			wrong = append(wrong, fmt.Sprintf("%v: %d, want %d: %.300s", gvk, resp.Status, code, resp.Body))
		}
		var want []string
		if r >= releases.WarningsSince && resp.Status != 404 && kind.DeprecatedAt(r) {
			want = []string{fmt.Sprintf("299 - %q", table.Warning(kind, r))}
		}
		warned := slices.DeleteFunc(slices.Clone(resp.Header.Values("Warning")), func(w string) bool { return !strings.Contains(w, " is deprecated in v") })
		if len(want) == 1 && len(warned) == 1 && !strings.Contains(warned[0], "; use ") { // it declares no replacement
			want[0], _, _ = strings.Cut(want[0], "; use ")
			want[0] = strings.TrimSuffix(want[0], `"`) + `"`
		}
		if !slices.Equal(warned, want) {
			wrong = append(wrong, fmt.Sprintf("%v: warned %q, want %q", gvk, warned, want))
		}
	}
	return wrong
}

// leftOut reports whether svc does not have a kind, which only alpha versions may be.
func leftOut(k *releases.Kind) bool {
	return k.Stability() == "alpha" && !slices.ContainsFunc(apis.Kinds(), func(declared *resource.Kind) bool {
		return slices.Contains(declared.GVKs(), k.GroupVersionKind)
	})
}

// differFromTable returns the kinds that are served and not in the table, and those in the
// table that are not served. all reports whether kinds that are off by default are served.
func differFromTable(s *launch.Server, table *releases.Table, r releases.Release, all bool) (wrong []string) {
	GinkgoHelper()
	served := servedKinds(s)
	name := func(gvk schema.GroupVersionKind) string { return gvk.GroupVersion().String() + " " + gvk.Kind }
	for gvk := range served {
		if k := table.Kind(gvk); (k == nil || !k.ServedAt(r) || k.Off && !all) && notServed[name(gvk)] == "" && !slices.Contains(connections, gvk.Kind) && gvk.Group != "metrics.k8s.io" {
			wrong = append(wrong, "served: "+name(gvk))
		}
	}
	for _, k := range table.Served(r) {
		if _, ok := served[k.GroupVersionKind]; !ok && (!k.Off || all && !leftOut(k)) && notServed[name(k.GroupVersionKind)] == "" {
			wrong = append(wrong, "not served: "+name(k.GroupVersionKind))
		}
	}
	return wrong
}

// expectDiscovery expects that a version of aggregated discovery is served, or else the list of
// groups to clients that take it.
func expectDiscovery(ctx context.Context, s *launch.Server, version string, served bool) {
	GinkgoHelper()
	accept := "application/json;g=apidiscovery.k8s.io;v=" + version + ";as=APIGroupDiscoveryList"
	code, kind := 406, "APIGroupList"
	if served {
		code, kind = 200, "APIGroupDiscoveryList"
	}
	resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: "/apis", Accept: accept})
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.Status).To(Equal(code), version)
	resp, err = launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: "/apis", Accept: accept + ",application/json"})
	Expect(err).NotTo(HaveOccurred())
	Expect(parse(resp, 200)).To(HaveKeyWithValue("kind", kind), version)
}

// expectEviction expects that an eviction in a version is taken.
func expectEviction(ctx context.Context, s *launch.Server, version string, taken bool) {
	GinkgoHelper()
	code := 400
	if taken {
		code = 404 // of the pod
	}
	resp, err := launch.Send(ctx, s.Config, launch.Request{
		Method: "POST", Path: "/api/v1/namespaces/default/pods/missing/eviction", ContentType: "application/json",
		Body: `{"apiVersion":"` + version + `","kind":"Eviction","metadata":{"name":"missing"}}`,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.Status).To(Equal(code), "%s: %s", version, resp.Body)
}

// gatesOfKinds returns the flags that turn on the gates without which --runtime-config turns on
// no kind, where the release has them.
func gatesOfKinds(r releases.Release) (flags []string) {
	GinkgoHelper()
	gates, err := featuregates.At(r)
	Expect(err).NotTo(HaveOccurred())
	for _, gate := range gates {
		if slices.Contains([]string{"ClusterTrustBundle", "CompositePodGroup", "EvictionRequestAPI", "GenericWorkload", "PodCertificateRequest", "StorageVersionMigrator"}, gate.Name) && !gate.Default {
			flags = append(flags, "--feature-gates="+gate.Name+"=true")
		}
	}
	return flags
}

var _ = Describe("Document 2, section 9: each release", func() {
	for _, r := range triedReleases() {
		It(fmt.Sprintf("%v serves what the table has, and accepts, warns of or refuses an object of each kind", r), func(ctx SpecContext) {
			table, err := releases.Load()
			Expect(err).NotTo(HaveOccurred())
			dir, err := launch.TempDir()
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(os.RemoveAll, dir)
			s := up(ctx, filepath.Join(dir, "data"), fmt.Sprintf("--release=%v", r))
			Eventually(ctx, func() []string { return differFromTable(s, table, r, false) }).Should(BeEmpty())
			Expect(tryZoo(ctx, s, table, r, false)).To(BeEmpty())
			group, err := launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: "/apis/apiregistration.k8s.io"})
			Expect(err).NotTo(HaveOccurred())
			Expect(parse(group, 200)["versions"]).To(HaveLen(map[bool]int{true: 2, false: 1}[r < 22]))
			code := map[bool]int{true: 200, false: 404}[r >= 24]
			for _, path := range []string{"/openapi/v3", "/openapi/v3/api/v1"} {
				resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: path})
				Expect(err).NotTo(HaveOccurred())
				Expect(resp.Status).To(Equal(code), path)
			}
			index, err := launch.Send(ctx, s.Config, launch.Request{Method: "GET", Path: "/"})
			Expect(err).NotTo(HaveOccurred())
			listed := ContainElement(HavePrefix("/openapi/v3"))
			if code == 404 {
				listed = Not(listed)
			}
			Expect(parse(index, 200)["paths"]).To(And(ContainElement("/openapi/v2"), listed))
			expectDiscovery(ctx, s, "v2beta1", r >= 27 && r < 33)
			expectDiscovery(ctx, s, "v2", r >= 27)
			expectEviction(ctx, s, "policy/v1beta1", true)
			expectEviction(ctx, s, "policy/v1", r >= 22)
		})

		It(fmt.Sprintf("%v serves what is off by default with --runtime-config=api/all=true", r), func(ctx SpecContext) {
			table, err := releases.Load()
			Expect(err).NotTo(HaveOccurred())
			dir, err := launch.TempDir()
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(os.RemoveAll, dir)
			s := up(ctx, filepath.Join(dir, "data"), append(gatesOfKinds(r), fmt.Sprintf("--release=%v", r), "--runtime-config=api/all=true")...)
			Eventually(ctx, func() []string { return differFromTable(s, table, r, true) }).Should(BeEmpty())
			Expect(tryZoo(ctx, s, table, r, true)).To(BeEmpty())
		})
	}
})
