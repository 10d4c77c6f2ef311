package apis

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// literalsAllowed are the files outside apis/ that may hold names of resources as
// literals, each with the reason. What a file needs to know of a resource belongs
// to the resource's declaration; prefer that to another line here.
var literalsAllowed = map[string]string{
	"apiserver/admission/admissiontest/admissiontest.go": "a kind of tests whose plural cannot be guessed",
	"apiserver/admission/escalation/escalation.go":       "RBAC itself: the resource that a roleRef's kind names",
	"apiserver/admission/exclusion/exclusion.go":         "Kubernetes' list of reviews, which no plugin intercepts",
	"apiserver/admission/noderestriction/pods.go":        "what a mirror pod must not refer to, for the message",
	"apiserver/admission/resourcequota/resourcequota.go": "Kubernetes' list of resources that no quota counts",
	"apiserver/authorization/node/node.go":               "the mode Node: the resources whose access depends on a node's pods",
	"apiserver/authorization/nodes.go":                   "RBAC policy: what a node may do",
	"apiserver/groupdomain/route.go":                     "the path segment /namespaces/ of the URL grammar",
	"apiserver/host/namespaces.go":                       "the host's namespaces, which are no kind of a fleet",
	"apiserver/options/flags.go":                         "the name of a flag",
	"apiserver/release/served.go":                        "subresources that only some releases have",
	"apiserver/routecache/routecache.go":                 "the path segment /namespaces/ of the URL grammar",
	"apiserver/serviceaccount/bound.go":                  "the claims of a bound token name these four kinds",
	"apiserver/serviceaccount/legacy.go":                 "a legacy token is stored in a secret",
	"cmd/svc/status.go":                                  "lines of the screen",
	"controllers/certificates/csrapproving/reconcile.go": "the access reviews that an approval depends on",
	"controllers/endpoints/controller.go":                "an alias of the controller's name",
	"controllers/horizontalpodautoscaler/evaluate.go":    "a kind of metrics, for the message",
	"controllers/namespace/decide.go":                    "pods are deleted first (KEP-5080)",
	"controllers/replicaset/kind.go":                     "one controller for two kinds: which of them it is",
	"controllers/resourcequota/controller.go":            "the names of quota's evaluators",
	"controllers/scheduler/metrics.go":                   "values of a label of kube-scheduler's metrics",
	"internal/convert/autoscaling.go":                    "a field of a metric",
	"internal/convert/networking.go":                     "a field of EndpointSlice",
	"internal/datadir/datadir.go":                        "the directory of pods' logs",
	"svclet/agent/server.go":                             "the cgroup of all pods in the summary",
	"svclet/apifake/serve.go":                            "an API server for tests",
	"svclet/apifake/server.go":                           "an API server for tests",
	"svclet/cgroup/manager.go":                           "a value of enforceNodeAllocatable",
	"svclet/config/check.go":                             "a value of enforceNodeAllocatable",
	"svclet/config/default.go":                           "a value of enforceNodeAllocatable",
	"svclet/containerd/reset_linux.go":                   "the directory of pods",
	"svclet/containerd/resetpods_linux.go":               "the directory of pods",
	"svclet/containerd/rootdir.go":                       "the directory of pods",
	"svclet/csi/record.go":                               "the directory of pods",
	"svclet/flexvolume/flexvolume.go":                    "the directory of pods",
	"svclet/networkpolicy/ruleset/group.go":              "words in the comment of a set",
	"svclet/proxy/ruleset/choices.go":                    "the name of a map of nftables",
	"svclet/server/auth/attributes.go":                   "document 3: the node's subresource for each path",
	"svclet/server/auth/authorize.go":                    "the node itself, in a SubjectAccessReview",
	"svclet/server/metrics/metrics.go":                   "the name of a metric",
	"svclet/server/routes.go":                            "paths of the node's server",
	"svclet/source/reference.go":                         "what a static pod must not refer to, for the message",
	"svclet/source/static.go":                            "a static manifest holds pods only",
	"svclet/volume/layout.go":                            "the directory of pods",
}

// TestResourceNamesAreLiteralsOnlyUnderAPIs: a list of resources anywhere else has
// to be kept in step with the declarations by hand. A client's request
// (Resource("pods")), a reflector's and the rules of a controller's role name
// resources by their nature.
func TestResourceNamesAreLiteralsOnlyUnderAPIs(t *testing.T) {
	names := resourceNames()
	used := map[string]bool{}
	root := os.DirFS("..")
	for _, dir := range []string{"apiserver", "cmd", "controllers", "internal", "svclet"} {
		err := fs.WalkDir(root, dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			for _, found := range literals(t, path, source, names) {
				if literalsAllowed[path] == "" {
					t.Errorf("%s: names a resource; its declaration under apis/ can say what is needed here, or literalsAllowed why not", found)
				}
				used[path] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for path := range literalsAllowed {
		if !used[path] {
			t.Errorf("literalsAllowed: %s names no resource any more", path)
		}
	}
}

// TestLiteralsFindsNamesOfResources: the check above can fail.
func TestLiteralsFindsNamesOfResources(t *testing.T) {
	const source = `package p
// "pods" in a comment
var a = "pods"
var b = []string{"nodes/proxy", "node", "two pods"}
var c = client.Resource("pods")
var d = controller.Can("", []string{"pods"}, []string{"get"})
var e = rbacv1.PolicyRule{Resources: []string{"pods"}}
func f(x string) { switch x { case "secrets": } }
`
	want := []string{`p.go:3:9: "pods"`, `p.go:4:18: "nodes/proxy"`, `p.go:8:36: "secrets"`}
	if got := literals(t, "p.go", []byte(source), resourceNames()); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// resourceNames returns the name of every resource that is declared.
func resourceNames() map[string]bool {
	names := map[string]bool{}
	for _, k := range Kinds() {
		names[k.Name] = true
	}
	return names
}

// literals returns where a Go file has a string that is a resource's name, with or
// without a subresource, other than where a client or a role names it.
func literals(t *testing.T, path string, source []byte, names map[string]bool) []string {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.SelectorExpr)
			return !ok || !namesAResource(called)
		case *ast.KeyValueExpr:
			key, ok := n.Key.(*ast.Ident)
			return !ok || key.Name != "Resources"
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(n.Value)
			if err != nil {
				t.Fatal(err)
			}
			if name, _, _ := strings.Cut(value, "/"); names[name] {
				found = append(found, files.Position(n.Pos()).String()+": "+n.Value)
			}
		}
		return true
	})
	return found
}

// namesAResource reports whether the arguments of a call are the resource of a
// client's request, of a reflector or of a role.
func namesAResource(called *ast.SelectorExpr) bool {
	if from, ok := called.X.(*ast.Ident); ok {
		switch from.Name + "." + called.Sel.Name {
		case "controller.Can", "reflector.Run", "reflector.RunSelected":
			return true
		}
	}
	return called.Sel.Name == "Resource"
}
