package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 9: deprecation rules", func() {
	It("deprecated labels of nodes warn in all kinds that hold them", func(ctx SpecContext) {
		const want = `deprecated since v1.14; use \"kubernetes.io/os\" instead`
		for path, body := range map[string]string{
			"/api/v1/namespaces/default/pods":                                 `{"metadata":{"name":"old"},"spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c","image":"i"}]}}`,
			"/api/v1/persistentvolumes":                                       `{"metadata":{"name":"old"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"local":{"path":"/d"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"beta.kubernetes.io/os","operator":"Exists"}]}]}}}}`,
			"/apis/apps/v1/namespaces/default/deployments":                    `{"metadata":{"name":"old"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c","image":"i"}]}}}}`,
			"/apis/node.k8s.io/v1/runtimeclasses":                             `{"metadata":{"name":"old"},"handler":"h","scheduling":{"nodeSelector":{"beta.kubernetes.io/os":"linux"}}}`,
			"/apis/storage.k8s.io/v1/storageclasses":                          `{"metadata":{"name":"old"},"provisioner":"p","allowedTopologies":[{"matchLabelExpressions":[{"key":"beta.kubernetes.io/os","values":["linux"]}]}]}`,
			"/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities": `{"metadata":{"name":"old"},"storageClassName":"c","nodeTopology":{"matchLabels":{"beta.kubernetes.io/os":"linux"}}}`,
		} {
			resp := send(ctx, launch.Request{Method: "POST", Path: path + "?dryRun=All", ContentType: "application/json", Body: body})
			Expect(resp.Status).To(Equal(201), "%s: %s", path, resp.Body)
			Expect(strings.Join(resp.Header["Warning"], "\n")).To(ContainSubstring(want), path)
		}
	})

	It("a request to a version is annotated and counted as deprecated if the release deprecates it", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
		Expect(os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}`), 0o600)).To(Succeed())
		audited := up(ctx, filepath.Join(dir, "data"), "--audit-policy-file="+policy, "--audit-log-path="+log)
		// Release 1.26 deprecated v1beta2 of flow control, and 1.29 v1beta3.
		for _, path := range []string{
			"/apis/flowcontrol.apiserver.k8s.io/v1beta2/flowschemas", "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas",
			"/api/v1/endpoints",
		} {
			resp, err := launch.Send(ctx, audited.Config, launch.Request{Method: "GET", Path: path})
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Status).To(Equal(200), resp.Body)
		}
		const gauge = "apiserver_requested_deprecated_apis"
		Eventually(ctx, func(g Gomega) {
			resp, err := launch.Send(ctx, audited.Config, launch.Request{Method: "GET", Path: "/metrics"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resp.Body).To(ContainSubstring(gauge + `{group="flowcontrol.apiserver.k8s.io",removed_release="1.29",resource="flowschemas",subresource="",version="v1beta2"} 1`))
			Expect(resp.Body).NotTo(MatchRegexp(gauge + `.*(v1beta3|endpoints)`))
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			text, err := os.ReadFile(log)
			g.Expect(err).NotTo(HaveOccurred())
			deprecated := map[string]bool{}
			for line := range strings.Lines(string(text)) {
				for _, version := range []string{"v1beta2", "v1beta3"} {
					if strings.Contains(line, `"requestURI":"/apis/flowcontrol.apiserver.k8s.io/`+version+"/flowschemas\"") {
						deprecated[version] = strings.Contains(line, `"k8s.io/deprecated":"true"`)
					}
				}
			}
			g.Expect(deprecated).To(Equal(map[string]bool{"v1beta2": true, "v1beta3": false}))
		}).Should(Succeed())
	})

	It("the metrics of the release exist", func(ctx SpecContext) {
		denied := `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","resourceAttributes":{"verb":"get","resource":"pods"}}}`
		parse(send(ctx, launch.Request{Method: "POST", Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", ContentType: "application/json", Body: denied}), 201)
		var text string
		for _, series := range []string{
			`apiserver_admission_controller_admission_duration_seconds_count{`, `apiserver_admission_step_admission_duration_seconds_count{`,
			`apiserver_authorization_decisions_total{decision="allowed",name="system:masters",type="system:masters"}`,
			`apiserver_current_inflight_requests{request_kind="mutating"}`, `apiserver_flowcontrol_nominal_limit_seats{`,
			`apiserver_longrunning_requests{`, `apiserver_request_duration_seconds_bucket{`, `apiserver_request_sli_duration_seconds_bucket{`,
			`apiserver_request_total{`, `apiserver_response_sizes_bucket{`,
			`apiserver_storage_objects{resource="namespaces"}`, `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}`,
			`kube_apiserver_clusterip_allocator_allocated_ips{cidr="10.0.0.0/24"}`, `kube_apiserver_nodeport_allocator_available_ports `,
			`kubernetes_build_info{`, `kubernetes_feature_enabled{name="APIResponseCompression",stage="BETA"} 1`,
			`registered_metrics_total{`, `rest_client_request_duration_seconds_count{`, `rest_client_requests_total{`,
		} {
			Eventually(ctx, func() string { // numbers of objects are counted now and then, say
				text = send(ctx, launch.Request{Method: "GET", Path: "/metrics"}).Body
				return text
			}).Should(ContainSubstring("\n"+series), series)
		}
		Expect(text).To(ContainSubstring(`major="1",minor="28"`))
		Expect(text).To(ContainSubstring("# HELP apiserver_storage_objects [STABLE] Number of stored objects"))
		Eventually(ctx, func() string { return send(ctx, launch.Request{Method: "GET", Path: "/metrics/slis"}).Body }).Should(ContainSubstring(`kubernetes_healthcheck{name="etcd"`))
	})

	It("--show-hidden-metrics-for-version names the release before the served one", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		_, err = launch.Up(ctx, dir, "--controllers=", "--show-hidden-metrics-for-version=1.20")
		Expect(err).To(MatchError(ContainSubstring(`--show-hidden-metrics-for-version: invalid release "1.20": must be 1.27`)))
		up(ctx, filepath.Join(dir, "data"), "--show-hidden-metrics-for-version=1.27")
	})

	It("the size of the metrics is bounded, however many resources there are", func(ctx SpecContext) {
		const definitions, requests = 150, 3
		path := func(i int) string { return fmt.Sprintf("/apis/many%d.example.com/v1/namespaces/default/things", i) }
		for i := range definitions {
			parse(send(ctx, launch.Request{Method: "POST", Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ContentType: "application/json", Body: fmt.Sprintf(
				`{"metadata":{"name":"things.many%[1]d.example.com"},"spec":{"group":"many%[1]d.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing%[1]d"},
				"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, i)}), 201)
		}
		for i := range definitions {
			Eventually(func(ctx SpecContext) int { return send(ctx, launch.Request{Method: "GET", Path: path(i)}).Status }).WithContext(ctx).Should(Equal(200), path(i))
			for n := range requests {
				parse(send(ctx, launch.Request{Method: "POST", Path: path(i), ContentType: "application/json", Body: fmt.Sprintf(
					`{"apiVersion":"many%[1]d.example.com/v1","kind":"Thing%[1]d","metadata":{"name":"n%d"}}`, i, n)}), 201)
				send(ctx, launch.Request{Method: "PATCH", Path: path(i) + fmt.Sprintf("/n%d", n), ContentType: "application/merge-patch+json", Body: `{"a":1}`})
				send(ctx, launch.Request{Method: "DELETE", Path: path(i) + fmt.Sprintf("/n%d", n)})
				send(ctx, launch.Request{Method: "GET", Path: path(i) + "/none"})
			}
		}
		Eventually(ctx, func(g Gomega) {
			text := send(ctx, launch.Request{Method: "GET", Path: "/metrics"}).Body
			Expect(len(text)).To(BeNumerically("<", 1<<20))
			g.Expect(text).To(MatchRegexp(`apiserver_request_total{.*resource="other",.*verb="POST"`))
			g.Expect(text).NotTo(MatchRegexp(`apiserver_storage_objects{.*} -1`), "etcd did not count in time")
		}).Should(Succeed())
	})
})
