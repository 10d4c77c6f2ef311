// Package access compares what svc and kube-apiserver authorize under the default roles, and
// what their admission plugins accept, change and refuse.
package access

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/peers/difference"
)

// server is one of the two API servers.
type server struct {
	config *rest.Config
	client kubernetes.Interface
	// audit is the file of its audit log, if that is compared.
	audit string
	// peer is kube-apiserver, unless the server is svc.
	peer *launch.Kube
}

func newServer(t *testing.T, config *rest.Config) *server {
	t.Helper()
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{config: config, client: client}
}

// ofKube is the release of kube-apiserver.
const ofKube = "1.36"

// svcFlags returns the flags of svc alone: without controllers, and further ones.
func svcFlags(flags ...string) []string {
	return launch.WithoutControllers(append(flags, "--service-cluster-ip-range=10.96.0.0/16")...)
}

// start starts both servers, without controllers, with further flags.
func start(t *testing.T, flags ...string) (svc, kube *server) {
	t.Helper()
	return startWith(t, svcFlags(), flags...)
}

// startWith starts both servers, svc with flags of its own.
func startWith(t *testing.T, own []string, flags ...string) (svc, kube *server) {
	t.Helper()
	return startEach(t, append(own, flags...), flags)
}

// startEach starts each server with its flags.
func startEach(t *testing.T, ofSvc, ofKube []string) (svc, kube *server) {
	t.Helper()
	kube = startKube(t, ofKube...)
	s, err := launch.Up(t.Context(), t.TempDir(), ofSvc...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return newServer(t, s.Config), kube
}

// startKube starts kube-apiserver. It skips the test if there is no svc to compare with.
func startKube(t *testing.T, flags ...string) *server {
	t.Helper()
	if os.Getenv("SVC") == "" {
		t.Skip("it compares the binary that $SVC names with kube-apiserver: run make test-peers-access")
	}
	for _, program := range []string{"kube-apiserver", "etcd"} {
		if _, err := launch.Peer(program); err != nil {
			t.Fatal(err)
		}
	}
	k, err := launch.UpKube(t.Context(), t.TempDir(), flags...)
	t.Cleanup(k.Stop)
	if err != nil {
		t.Fatal(err)
	}
	kube := newServer(t, k.Config)
	kube.peer = k
	return kube
}

// report fails the test for each difference that differences.yaml does not explain, and
// for each explanation of a difference that does not exist. There, svclet is what svc
// answers, and kubelet what kube-apiserver does.
func report(t *testing.T, about string, found []difference.Difference) {
	t.Helper()
	listed, err := difference.ReadList("differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	unexplained, obsolete := difference.Check(found, listed[about])
	for _, d := range unexplained {
		t.Errorf("%s: %s:\n\tsvc:  %s\n\tkube: %s", d.Subject, d.Path, d.Svclet, d.Kubelet)
	}
	for _, e := range obsolete {
		t.Errorf("in the list, but not so: of %q: %s: %s", e.Of, e.Path, e.Reason)
	}
}

// TestBothServersHaveTheSameRoles compares all default roles and bindings of one release,
// and what this one and svc's default release authorize.
func TestBothServersHaveTheSameRoles(t *testing.T) {
	svc, kube := startWith(t, svcFlags("--release="+ofKube))
	var found []difference.Difference
	ours, theirs := svc.roles(t), kube.roles(t)
	names := maps.Clone(ours)
	maps.Copy(names, theirs)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		found = append(found, difference.Between(name, orEmpty(ours[name]), orEmpty(theirs[name]))...)
	}
	report(t, "roles", found)
	kube.bind(t)
	t.Logf("%d roles and bindings", len(names))
	t.Run("access reviews", func(t *testing.T) {
		s, err := launch.Up(t.Context(), t.TempDir(), svcFlags()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		compareReviews(t, "reviews", newServer(t, s.Config), kube)
	})
	t.Run("access reviews of the same release", func(t *testing.T) { compareReviews(t, "reviews at 1.36", svc, kube) })
}

// roles returns the roles and bindings of a server: what a role allows on each resource,
// and the role and the subjects of a binding.
func (s *server) roles(t *testing.T) map[string]difference.Fields {
	t.Helper()
	all := map[string]difference.Fields{}
	rbac := s.client.RbacV1()
	cluster, err := rbac.ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range cluster.Items {
		fields := allowed(role.Rules)
		if a := role.AggregationRule; a != nil {
			fields["aggregationRule"] = fmt.Sprint(a.ClusterRoleSelectors)
		}
		for key, value := range role.Labels {
			fields["label "+key] = value
		}
		all["cluster role "+role.Name] = fields
	}
	roles, err := rbac.Roles("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		all["role "+role.Namespace+"/"+role.Name] = allowed(role.Rules)
	}
	bindings, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		all["cluster binding "+b.Name] = bound(b.RoleRef, b.Subjects)
	}
	inNamespaces, err := rbac.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range inNamespaces.Items {
		all["binding "+b.Namespace+"/"+b.Name] = bound(b.RoleRef, b.Subjects)
	}
	return all
}

func bound(ref rbacv1.RoleRef, subjects []rbacv1.Subject) difference.Fields {
	fields := difference.Fields{"role": ref.Kind + " " + ref.Name}
	for _, s := range subjects {
		fields[strings.Join([]string{"subject", s.Kind, s.Namespace, s.Name}, " ")] = "bound"
	}
	return fields
}

// allowed returns the verbs that rules allow, by resource or URL.
func allowed(rules []rbacv1.PolicyRule) difference.Fields {
	verbs := map[string][]string{}
	for _, rule := range rules {
		for _, url := range rule.NonResourceURLs {
			verbs[url] = append(verbs[url], rule.Verbs...)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := resource
				if group != "" {
					what = group + " " + resource
				}
				if len(rule.ResourceNames) == 0 {
					verbs[what] = append(verbs[what], rule.Verbs...)
				}
				for _, name := range rule.ResourceNames {
					verbs[what+" "+name] = append(verbs[what+" "+name], rule.Verbs...)
				}
			}
		}
	}
	fields := difference.Fields{}
	for what, list := range verbs {
		slices.Sort(list)
		fields[what] = strings.Join(slices.Compact(list), " ")
	}
	return fields
}

// attributes are those of the reviews: a verb and a resource or URL.
var attributes = []authorizationv1.SubjectAccessReviewSpec{
	inDefault("get", "", "pods", ""), inDefault("create", "", "pods", "exec"), inDefault("get", "", "pods", "log"), inDefault("list", "", "secrets", ""),
	inDefault("create", "", "serviceaccounts", "token"), inDefault("impersonate", "", "serviceaccounts", ""), inDefault("update", "apps", "deployments", ""),
	inDefault("patch", "apps", "deployments", "scale"), inDefault("deletecollection", "batch", "jobs", ""), inDefault("watch", "", "events", ""),
	inDefault("create", "rbac.authorization.k8s.io", "rolebindings", ""), inDefault("create", "authorization.k8s.io", "localsubjectaccessreviews", ""),
	inDefault("delete", "coordination.k8s.io", "leases", ""), inDefault("get", "networking.k8s.io", "ingresses", "status"), inDefault("create", "", "pods", "eviction"),
	inCluster("get", "", "nodes", ""), inCluster("create", "", "nodes", "proxy"), inCluster("get", "", "nodes", "metrics"), inCluster("patch", "", "nodes", "status"),
	inCluster("escalate", "rbac.authorization.k8s.io", "clusterroles", ""), inCluster("create", "authentication.k8s.io", "tokenreviews", ""),
	inCluster("create", "certificates.k8s.io", "certificatesigningrequests", ""), inCluster("update", "certificates.k8s.io", "certificatesigningrequests", "approval"),
	inCluster("create", "resource.k8s.io", "resourceslices", ""), inCluster("deletecollection", "resource.k8s.io", "resourceslices", ""), inCluster("list", "", "pods", ""),
	inCluster("update", "", "namespaces", "finalize"), inCluster("get", "storage.k8s.io", "storageclasses", ""), inCluster("*", "*", "*", ""),
	url("/healthz"), url("/livez/ping"), url("/metrics"), url("/openapi/v2"), url("/api/v1"), url("/version/"), url("/logs"), url("/.well-known/openid-configuration"), url("/debug/pprof"), url("*"),
}

func inDefault(verb, group, resource, subresource string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: metav1.NamespaceDefault, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: "x",
	}}
}

func inCluster(verb, group, resource, subresource string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: subresource,
	}}
}

func url(path string) authorizationv1.SubjectAccessReviewSpec {
	return authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path}}
}

// reviewed are users, each with groups besides system:authenticated.
var reviewed = map[string][]string{
	"jane": nil, "system:admin": {"system:masters"}, "system:node:n1": {"system:nodes"}, "system:node:": {"system:nodes"}, "not-a-node": {"system:nodes"},
	"system:kube-scheduler": nil, "system:kube-controller-manager": nil, "system:kube-proxy": nil, "watcher": {"system:monitoring"},
	"system:serviceaccount:kube-system:deployment-controller":              {"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	"system:serviceaccount:kube-system:generic-garbage-collector":          {"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	"system:serviceaccount:kube-system:clusterrole-aggregation-controller": {"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	"system:serviceaccount:default:default":                                {"system:serviceaccounts", "system:serviceaccounts:default"},
	"admin-of-default":                                                     nil, "editor-of-default": nil, "viewer-of-default": nil, "admin-of-all": nil, "delegator": nil, "metrics-scraper": nil,
}

// bindings bind some of the users to roles, in the namespace default but for the last.
var bindings = map[string]string{
	"admin-of-default": "system:aggregate-to-admin", "editor-of-default": "system:aggregate-to-edit", "viewer-of-default": "system:aggregate-to-view",
}

var clusterBindings = map[string]string{"admin-of-all": "cluster-admin", "delegator": "system:auth-delegator", "metrics-scraper": "system:monitoring"}

// compareReviews compares the verdicts and reasons of both servers. The bindings of kube have
// been made.
func compareReviews(t *testing.T, about string, svc, kube *server) {
	svc.bind(t)
	var found []difference.Difference
	for _, name := range slices.Sorted(maps.Keys(reviewed)) {
		for _, spec := range attributes {
			spec.User, spec.Groups = name, append([]string{"system:authenticated"}, reviewed[name]...)
			ours, theirs := svc.review(t, spec), kube.review(t, spec)
			found = append(found, difference.Between(name+" "+describe(spec), ours, theirs)...)
		}
	}
	report(t, about, found)
	t.Logf("%d reviews", len(reviewed)*len(attributes))
}

func describe(spec authorizationv1.SubjectAccessReviewSpec) string {
	if n := spec.NonResourceAttributes; n != nil {
		return n.Verb + " " + n.Path
	}
	r := spec.ResourceAttributes
	return strings.Join([]string{r.Verb, r.Group, r.Resource, r.Subresource}, " ")
}

// bind makes the bindings, and returns when the authorizer knows them.
func (s *server) bind(t *testing.T) {
	t.Helper()
	ref := func(role string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	}
	subjects := func(user string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	}
	for user, role := range bindings {
		if _, err := s.client.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref(role), Subjects: subjects(user)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for user, role := range clusterBindings {
		if _, err := s.client.RbacV1().ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref(role), Subjects: subjects(user)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for user, spec := range map[string]authorizationv1.SubjectAccessReviewSpec{
		"admin-of-default": inDefault("create", "rbac.authorization.k8s.io", "rolebindings", ""), "editor-of-default": inDefault("update", "apps", "deployments", ""),
		"viewer-of-default": inDefault("get", "", "pods", ""), "admin-of-all": inCluster("*", "*", "*", ""),
		"delegator": inCluster("create", "authentication.k8s.io", "tokenreviews", ""), "metrics-scraper": url("/metrics"),
	} {
		spec.User = user
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, launch.Patience, true, func(context.Context) (bool, error) {
			return s.review(t, spec)["allowed"] == "true", nil
		})
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
	}
}

func (s *server) review(t *testing.T, spec authorizationv1.SubjectAccessReviewSpec) difference.Fields {
	t.Helper()
	r, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return difference.Fields{"error": err.Error()}
	}
	return difference.Fields{
		"allowed": fmt.Sprint(r.Status.Allowed), "denied": fmt.Sprint(r.Status.Denied), "reason": r.Status.Reason, "evaluationError": r.Status.EvaluationError,
	}
}

// orEmpty returns no fields for an object that only the other server has.
func orEmpty(fields difference.Fields) difference.Fields {
	if fields == nil {
		return difference.Fields{}
	}
	return fields
}
