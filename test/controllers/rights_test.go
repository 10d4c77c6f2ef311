package controllers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/controllers"
)

// auditFlags make the server log the managers' requests.
func auditFlags(dir string) []string {
	policy := filepath.Join(dir, "audit.yaml")
	Expect(os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
"rules": [{"level": "Metadata", "users": ["`+controllers.User+`"]}, {"level": "None"}]}`), 0o600)).To(Succeed())
	auditLog = filepath.Join(dir, "audit.log")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}
}

// auditLog is the file that auditFlags names.
var auditLog string

var _ = Describe("rights", func() {
	It("are those that the controllers declare, and those of all authenticated users", func(ctx SpecContext) {
		config := rest.CopyConfig(server.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: controllers.User, Groups: []string{"system:authenticated"}}
		as, err := ctrlclient.New(config, ctrlclient.Options{Scheme: client.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
		Expect(as.Create(ctx, review)).To(Succeed())
		Expect(review.Status.Incomplete).To(BeFalse())
		var has, declared []string
		for _, r := range review.Status.ResourceRules {
			has = append(has, spell(r.APIGroups, r.Resources, r.ResourceNames, r.Verbs)...)
		}
		rules, err := controllers.Rules()
		Expect(err).NotTo(HaveOccurred())
		for _, g := range authorization.Basic() {
			if g.Group == "system:authenticated" {
				rules = append(rules, g.Rules...)
			}
		}
		for _, r := range rules {
			declared = append(declared, spell(r.APIGroups, r.Resources, r.ResourceNames, r.Verbs)...)
		}
		sort.Strings(has)
		sort.Strings(declared)
		Expect(slices.Compact(has)).To(Equal(slices.Compact(declared)))
		for _, forbidden := range []string{"create clusterroles", "create pods --subresource=exec", "update configmaps", "create serviceaccounts --subresource=token", "impersonate users"} {
			out, _, _ := kubectl.Run(ctx, "", append([]string{"auth", "can-i", "--as", controllers.User}, strings.Fields(forbidden)...)...)
			Expect(strings.TrimSpace(out)).To(Equal("no"), forbidden)
		}
	})
})

// spell lists every single right of a rule about resources.
func spell(groups, resources, names, verbs []string) []string {
	var rights []string
	for _, g := range groups {
		for _, r := range resources {
			for _, v := range verbs {
				rights = append(rights, fmt.Sprintf("%s %s.%s %v", v, r, g, names))
			}
		}
	}
	return rights
}

// What the specs have made the managers ask must be allowed, and to each
// controller by what itself declares.
var _ = AfterSuite(func() {
	allowed := map[string][]rbacv1.PolicyRule{"": controllers.OwnRules()}
	for _, c := range controllers.All() {
		rules, err := controllers.RulesOf(c)
		Expect(err).NotTo(HaveOccurred())
		allowed[c.Name] = append(slices.Clone(rules), controllers.OwnRules()[0]) // events
		allowed[""] = append(allowed[""], rules[:len(c.Reads)]...)               // all share one cache
	}
	log, err := os.ReadFile(auditLog)
	if errors.Is(err, fs.ErrNotExist) {
		return // no server has started
	}
	Expect(err).NotTo(HaveOccurred())
	// The server still writes the last line.
	lines := bufio.NewScanner(bytes.NewReader(log[:bytes.LastIndexByte(log, '\n')+1]))
	lines.Buffer(nil, 1<<20)
	undeclared, asked := map[string]bool{}, 0
	for lines.Scan() {
		var event auditv1.Event
		Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.ObjectRef == nil {
			continue // discovery
		}
		asked++
		_, name, _ := strings.Cut(event.UserAgent, "/")
		attributes := authorizer.AttributesRecord{
			Verb: event.Verb, APIGroup: event.ObjectRef.APIGroup, APIVersion: event.ObjectRef.APIVersion, Resource: event.ObjectRef.Resource,
			Subresource: event.ObjectRef.Subresource, Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name, ResourceRequest: true,
		}
		if event.Annotations["authorization.k8s.io/decision"] == "forbid" ||
			!slices.ContainsFunc(allowed[name], func(r rbacv1.PolicyRule) bool { return authorization.Allows(r, attributes) }) {
			undeclared[fmt.Sprintf("%s: %s %s/%s.%s", event.UserAgent, event.Verb, event.ObjectRef.Resource, event.ObjectRef.Subresource, event.ObjectRef.APIGroup)] = true
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	Expect(asked).NotTo(BeZero())
	Expect(undeclared).To(BeEmpty(), "requests that no declaration has")
})
