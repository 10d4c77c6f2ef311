package spec

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Aggregated servers", func() {
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	// register makes the versions of a group <name>.example.com those of a server.
	register := func(ctx context.Context, name, address string, versions ...string) {
		GinkgoHelper()
		u, err := url.Parse(address)
		Expect(err).NotTo(HaveOccurred())
		create(ctx, "/api/v1/namespaces/default/services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"ExternalName","externalName":"localhost"}}`, name))
		for _, version := range versions {
			create(ctx, services, fmt.Sprintf(`{"metadata":{"name":"%[1]s.%[2]s.example.com"},"spec":{"group":"%[2]s.example.com","version":%[1]q,
				"groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":%[2]q,"port":%[3]s}}}`, version, name, u.Port()))
			DeferCleanup(func(ctx SpecContext) {
				send(ctx, launch.Request{Method: "DELETE", Path: services + "/" + version + "." + name + ".example.com"})
			})
		}
	}
	unregister := func(ctx context.Context, name, version string) {
		GinkgoHelper()
		parse(send(ctx, launch.Request{Method: "DELETE", Path: services + "/" + version + "." + name + ".example.com"}), 200)
	}
	available := func(ctx context.Context, name, version string, status, reason string) {
		GinkgoHelper()
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, services+"/"+version+"."+name+".example.com")["status"]).To(HaveKeyWithValue("conditions",
				ContainElement(And(HaveKeyWithValue("type", "Available"), HaveKeyWithValue("status", status), HaveKeyWithValue("reason", reason)))))
		}).Should(Succeed())
	}
	// answers waits until the requests of a version get a status: the proxy reads APIServices
	// and their conditions from a watch.
	answers := func(ctx context.Context, name, version string, status int) {
		GinkgoHelper()
		soon(ctx, launch.Request{Method: "GET", Path: "/apis/" + name + ".example.com/" + version + "/widgets"}, status)
	}
	// others expects that the other groups are served and discovered as without the
	// aggregated server.
	others := func(ctx context.Context) {
		GinkgoHelper()
		get(ctx, "/apis/apps/v1/namespaces/default/deployments")
		soon(ctx, launch.Request{Method: "GET", Path: "/readyz"}, 200)
		found := parse(send(ctx, launch.Request{Method: "GET", Path: "/apis", Accept: "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"}), 200)
		for _, group := range found["items"].([]any) {
			if metadataOf(group.(object))["name"] == "apps" {
				Expect(fmt.Sprint(group)).To(And(ContainSubstring("deployments"), Not(ContainSubstring("stolen"))))
				return
			}
		}
		Fail("the group apps is not discovered")
	}
	// discovery answers with the resource "widgets", as of the version that is asked
	// for, or that of claimed.
	discovery := func(claimed string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", inJSON)
			version, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
			if number, path, _ := strings.Cut(rest, "/"); path != "" {
				fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"%s/%s","metadata":{},"items":[]}`, version, number)
				return
			}
			version += "/" + rest
			if claimed != "" {
				version = claimed
			}
			if strings.Count(r.URL.Path, "/") < 3 {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[{"name":"stolen","singularName":"stolen","namespaced":true,"kind":"Widget","verbs":["get"]}]}`, version)
		}
	}

	It("one that does not answer is unavailable: its requests get 503, and no other", func(ctx SpecContext) {
		register(ctx, "dead", "https://127.0.0.1:1", "v1")
		available(ctx, "dead", "v1", "False", "FailedDiscoveryCheck")
		answers(ctx, "dead", "v1", 503)
		others(ctx)
	})
	It("one that answers slowly is unavailable, and delays no other", func(ctx SpecContext) {
		address, _ := backend(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		register(ctx, "tardy", address, "v1")
		others(ctx) // while it is asked
		available(ctx, "tardy", "v1", "False", "FailedDiscoveryCheck")
		answers(ctx, "tardy", "v1", 503)
	})
	It("one whose discovery claims another group gets no more than its own", func(ctx SpecContext) {
		address, _ := backend(discovery("apps/v1"))
		register(ctx, "liar", address, "v1")
		available(ctx, "liar", "v1", "True", "Passed")
		others(ctx)
		Expect(send(ctx, launch.Request{Method: "GET", Path: "/apis/apps/v1"}).Body).NotTo(ContainSubstring("stolen"))
	})
	It("one that is upgraded serves a version more, and later one less", func(ctx SpecContext) {
		address, _ := backend(discovery(""))
		register(ctx, "upgraded", address, "v1", "v2")
		for _, version := range []string{"v1", "v2"} {
			available(ctx, "upgraded", version, "True", "Passed")
			answers(ctx, "upgraded", version, 200)
		}
		unregister(ctx, "upgraded", "v1")
		answers(ctx, "upgraded", "v1", 404)
		answers(ctx, "upgraded", "v2", 200)
		others(ctx)
	})
})
