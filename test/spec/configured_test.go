package spec

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

// The rules of this file need flags. Its specs share one server, which has them all.
var _ = Describe("Documents 1 and 2: rules that need a flag", Ordered, func() {
	var (
		configured *launch.Server
		auditLog   string
	)
	BeforeAll(func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		tokens := filepath.Join(dir, "tokens.csv")
		Expect(os.WriteFile(tokens, []byte("0123456789abcdef,jane,uid-7,\"one,two\"\n"), 0o600)).To(Succeed())
		policy := filepath.Join(dir, "policy.yaml")
		Expect(os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata","resources":[{"group":"","resources":["nodes"]}]}]}`), 0o600)).To(Succeed())
		auditLog = filepath.Join(dir, "audit.log")
		configured = up(ctx, filepath.Join(dir, "data"), "--feature-gates=WatchList=true,APIResponseCompression=false", "--etcd-compaction-interval=1s", "--token-auth-file="+tokens,
			"--audit-policy-file="+policy, "--audit-log-path="+auditLog,
			"--runtime-config=flowcontrol.apiserver.k8s.io/v1beta2=false,flowcontrol.apiserver.k8s.io/v1beta3,apps/v1/deployments=false,admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies")
	})
	to := func(ctx context.Context, r launch.Request) launch.Response {
		GinkgoHelper()
		resp, err := launch.Send(ctx, configured.Config, r)
		Expect(err).NotTo(HaveOccurred(), "%s %s", r.Method, r.Path)
		return resp
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	post := func(ctx context.Context, name string) string {
		GinkgoHelper()
		made := parse(to(ctx, launch.Request{Method: "POST", Path: maps, ContentType: inJSON, Body: configMap(`"name":"`+name+`"`, `{}`)}), 201)
		return metadataOf(made)["resourceVersion"].(string)
	}

	Describe("Document 1, section 4: streaming lists", Ordered, func() {
		stream := func(ctx context.Context, query string, whole func([]object) bool) []object {
			GinkgoHelper()
			return watched(ctx, configured, maps+"?sendInitialEvents=true"+query, whole)
		}
		synced := func(event object) bool {
			if event["type"] != "BOOKMARK" {
				return false
			}
			_, marks := metadataOf(event["object"].(object))["annotations"]
			return marks
		}
		var version string
		BeforeAll(func(ctx SpecContext) {
			post(ctx, "one")
			version = post(ctx, "two")
		})
		It("begins with ADDED for each object, and one BOOKMARK with the version", func(ctx SpecContext) {
			for _, query := range []string{"", "&resourceVersion=", "&resourceVersion=0", "&resourceVersion=" + version} {
				seen := stream(ctx, "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"+query, func(seen []object) bool {
					return slices.ContainsFunc(seen, synced)
				})
				added, ended := 0, false
				for _, event := range seen {
					switch event["type"] {
					case "ADDED":
						Expect(ended).To(BeFalse(), "an initial event follows the bookmark: %v", seen)
						added++
					case "BOOKMARK":
						Expect(event["object"]).To(And(HaveLen(3), HaveKeyWithValue("kind", "ConfigMap"), HaveKey("apiVersion")), "metadata is all else")
						meta := metadataOf(event["object"].(object))
						if synced(event) {
							if query != "&resourceVersion=0" {
								order, err := resourceversion.CompareResourceVersion(meta["resourceVersion"].(string), version)
								Expect(err).NotTo(HaveOccurred())
								Expect(order).To(BeNumerically(">=", 0), "%s: synced to an earlier version than that of the request", query)
							}
							Expect(ended).To(BeFalse(), "two bookmarks end the initial events: %v", seen)
							Expect(meta["annotations"]).To(HaveKeyWithValue("k8s.io/initial-events-end", "true"))
							Expect(meta["resourceVersion"]).NotTo(BeEmpty())
							ended = true
						}
					}
				}
				Expect(ended).To(BeTrue(), "%s: %v", query, seen)
				Expect(added).To(BeNumerically(">=", 2), query)
			}
		})
		It("has no BOOKMARK unless it is asked for", func(ctx SpecContext) {
			for _, event := range stream(ctx, "&resourceVersionMatch=NotOlderThan", atLeast(2)) {
				Expect(event["type"]).To(Equal("ADDED"))
			}
		})
		DescribeTable("resourceVersionMatch must be NotOlderThan", func(ctx SpecContext, match string) {
			failed(to(ctx, launch.Request{Method: "GET", Path: maps + "?watch=1&timeoutSeconds=1&sendInitialEvents=true" + match}), 422)
		},
			Entry("absent", ""),
			Entry("Exact", "&resourceVersionMatch=Exact&resourceVersion=1"),
		)
	})

	Describe("Document 1, section 7: 410", func() {
		It("a continue token, an Exact list and a watch expire with the history", func(ctx SpecContext) {
			post(ctx, "expired-a")
			post(ctx, "expired-b") // so that a chunk of one object has a token
			page := parse(to(ctx, launch.Request{Method: "GET", Path: maps + "?limit=1"}), 200)
			version, token := metadataOf(page)["resourceVersion"].(string), metadataOf(page)["continue"].(string)
			written := 0
			expired := func(path string) {
				GinkgoHelper()
				Eventually(ctx, func(g Gomega) {
					written++
					post(ctx, fmt.Sprintf("expired-%d", written))
					resp := to(ctx, launch.Request{Method: "GET", Path: path})
					g.Expect(resp.Status).To(Equal(410), resp.Body)
					g.Expect(resp.Body).To(ContainSubstring(`"reason":"Expired"`))
				}).Should(Succeed())
			}
			expired(maps + "?limit=1&continue=" + token)
			expired(maps + "?resourceVersionMatch=Exact&resourceVersion=" + version)
			// The cache of secrets is filled at the current version, as version 1 is compacted.
			seen := watched(ctx, configured, "/api/v1/namespaces/default/secrets?resourceVersion=1", atLeast(1))
			Expect(seen).To(HaveLen(1))
			Expect(seen[0]).To(And(HaveKeyWithValue("type", "ERROR"), HaveKeyWithValue("object", HaveKeyWithValue("code", BeEquivalentTo(410)))))
		})
	})

	DescribeTable("Document 1, section 9: --runtime-config", func(ctx SpecContext, path string, status int) {
		Expect(to(ctx, launch.Request{Method: "GET", Path: path}).Status).To(Equal(status))
	},
		Entry("a version with =false is disabled", "/apis/flowcontrol.apiserver.k8s.io/v1beta2", 404),
		Entry("a disabled version serves no objects", "/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas", 404),
		Entry("a version without a value is enabled", "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", 200),
		Entry("a resource with =false is disabled", "/apis/apps/v1/deployments", 404),
		Entry("other resources of its version are served", "/apis/apps/v1/replicasets", 200),
		Entry("a resource without a value is enabled", "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies", 200),
		Entry("other resources of its version stay disabled", "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicybindings", 404),
	)

	It("Document 1, section 4: no response is compressed while the gate APIResponseCompression is off", func(ctx SpecContext) {
		for _, path := range []string{maps, "/api/v1/namespaces/default", "/apis/apiregistration.k8s.io/v1/apiservices"} {
			resp := to(ctx, launch.Request{Method: "GET", Path: path, Header: map[string]string{"Accept-Encoding": "gzip"}})
			parse(resp, 200)
			Expect(resp.Header).NotTo(HaveKey("Content-Encoding"), path)
		}
	})

	It("the reason of RBAC is in the audit event of a request and in reviews of access, and begins with RBAC once", func(ctx SpecContext) {
		const rbac = "/apis/rbac.authorization.k8s.io/v1/"
		bind := func(role string) string {
			return `{"metadata":{"name":"` + role + `"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"` + role + `-user"}],
				"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + role + `"}}`
		}
		for _, object := range [][2]string{
			{"clusterroles", `{"metadata":{"name":"audited"},"rules":[{"apiGroups":[""],"resources":["nodes"],"verbs":["list"]}]}`},
			{"clusterrolebindings", bind("audited")}, {"clusterrolebindings", bind("missing")},
		} {
			parse(to(ctx, launch.Request{Method: "POST", Path: rbac + object[0], ContentType: inJSON, Body: object[1]}), 201)
		}
		const allowed = `RBAC: allowed by ClusterRoleBinding "audited" of ClusterRole "audited" to User "audited-user"`
		for user, reason := range map[string]string{"audited": allowed, "missing": `RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found`} {
			Eventually(ctx, func(g Gomega) {
				review := parse(to(ctx, launch.Request{Method: "POST", Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", ContentType: inJSON,
					Body: `{"spec":{"user":"` + user + `-user","resourceAttributes":{"verb":"list","resource":"nodes"}}}`}), 201)
				g.Expect(fmt.Sprint(review["status"].(object)["reason"], review["status"].(object)["evaluationError"])).To(And(
					ContainSubstring(reason), Not(ContainSubstring("RBAC: RBAC: "))))
			}).Should(Succeed())
		}
		parse(to(ctx, launch.Request{Method: "GET", Path: "/api/v1/nodes?limit=7", Header: map[string]string{"Impersonate-User": "audited-user"}}), 200)
		Eventually(ctx, func(g Gomega) {
			text, err := os.ReadFile(auditLog)
			g.Expect(err).NotTo(HaveOccurred())
			var reason string
			for line := range strings.Lines(string(text)) {
				var event struct {
					RequestURI, Stage string
					Annotations       map[string]string
				}
				g.Expect(json.Unmarshal([]byte(line), &event)).To(Succeed())
				if event.RequestURI == "/api/v1/nodes?limit=7" && event.Stage == "ResponseComplete" {
					reason = event.Annotations["authorization.k8s.io/reason"]
				}
			}
			g.Expect(reason).To(Equal(allowed))
		}).Should(Succeed())
	})

	Describe("Document 2, section 5: authentication", func() {
		type user struct {
			Username, UID string
			Groups        []string
		}
		who := func(ctx context.Context, r launch.Request) user {
			GinkgoHelper()
			r.Method, r.Path, r.ContentType, r.Body = "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", inJSON, `{}`
			var review struct{ Status struct{ UserInfo user } }
			Expect(json.Unmarshal([]byte(to(ctx, r).Body), &review)).To(Succeed())
			return review.Status.UserInfo
		}
		It("a client certificate's common name is the user, and its organizations are groups", func(ctx SpecContext) {
			config := rest.CopyConfig(configured.Config)
			Expect(rest.LoadTLSFiles(config)).To(Succeed())
			block, _ := pem.Decode(config.CertData)
			Expect(block).NotTo(BeNil())
			certificate, err := x509.ParseCertificate(block.Bytes)
			Expect(err).NotTo(HaveOccurred())
			Expect(certificate.Subject.Organization).NotTo(BeEmpty())
			Expect(who(ctx, launch.Request{})).To(Equal(user{
				Username: certificate.Subject.CommonName, Groups: append(certificate.Subject.Organization, "system:authenticated"),
			}))
		})
		It("a static token has the name, the uid and the groups of its line", func(ctx SpecContext) {
			Expect(who(ctx, launch.Request{Anonymous: true, Token: "0123456789abcdef"})).To(Equal(user{
				Username: "jane", UID: "uid-7", Groups: []string{"one", "two", "system:authenticated"},
			}))
		})
		It("a bootstrap token is system:bootstrap:<id> in system:bootstrappers until it expires", func(ctx SpecContext) {
			secret := func(id, expiration string) {
				GinkgoHelper()
				data := map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "expiration": expiration}
				for k, v := range data {
					data[k] = base64.StdEncoding.EncodeToString([]byte(v))
				}
				encoded, err := json.Marshal(data)
				Expect(err).NotTo(HaveOccurred())
				parse(to(ctx, launch.Request{Method: "POST", Path: "/api/v1/namespaces/kube-system/secrets", ContentType: inJSON,
					Body: `{"metadata":{"name":"bootstrap-token-` + id + `"},"type":"bootstrap.kubernetes.io/token","data":` + string(encoded) + `}`}), 201)
			}
			secret("aaaaaa", "2100-01-01T00:00:00Z")
			secret("bbbbbb", "2000-01-01T00:00:00Z")
			Eventually(ctx, func(g Gomega) {
				found := who(ctx, launch.Request{Anonymous: true, Token: "aaaaaa.0123456789abcdef"})
				g.Expect(found.Username).To(Equal("system:bootstrap:aaaaaa"))
				g.Expect(found.Groups).To(ContainElement("system:bootstrappers"))
			}).Should(Succeed())
			failed(to(ctx, launch.Request{Method: "GET", Path: "/version", Anonymous: true, Token: "bbbbbb.0123456789abcdef"}), 401)
		})
		It("a service account's token has its user and groups, until the account is deleted", func(ctx SpecContext) {
			const accounts = "/api/v1/namespaces/default/serviceaccounts"
			parse(to(ctx, launch.Request{Method: "POST", Path: accounts, ContentType: inJSON, Body: `{"metadata":{"name":"robot"}}`}), 201)
			made := parse(to(ctx, launch.Request{Method: "POST", Path: accounts + "/robot/token", ContentType: inJSON, Body: `{"spec":{}}`}), 201)
			token := made["status"].(object)["token"].(string)
			found := who(ctx, launch.Request{Anonymous: true, Token: token})
			Expect(found.Username).To(Equal("system:serviceaccount:default:robot"))
			Expect(found.Groups).To(ContainElements("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"))
			parse(to(ctx, launch.Request{Method: "DELETE", Path: accounts + "/robot"}), 200)
			Eventually(ctx, func() int {
				return to(ctx, launch.Request{Method: "GET", Path: "/version", Anonymous: true, Token: token}).Status
			}).Should(Equal(401))
		})
		It("a request without credentials is system:anonymous, and one with wrong credentials is refused", func(ctx SpecContext) {
			Expect(failed(to(ctx, launch.Request{Method: "GET", Path: maps, Anonymous: true}), 403).Message).To(ContainSubstring(`"system:anonymous"`))
			failed(to(ctx, launch.Request{Method: "GET", Path: maps, Anonymous: true, Token: "none"}), 401)
		})
	})
})

// events reads the events of a watch that has ended.
func events(resp launch.Response) []object {
	GinkgoHelper()
	Expect(resp.Status).To(Equal(200), resp.Body)
	var seen []object
	for line := range strings.Lines(resp.Body) {
		seen = append(seen, parse(launch.Response{Status: 200, Body: line}, 200))
	}
	return seen
}
