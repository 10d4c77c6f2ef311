package e2e

import (
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
)

var _ = Describe("discovery", func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	It("reports the release that it serves", func() {
		version := parse(k.run("version", "-o", "json"))["serverVersion"]
		Expect(version).To(gstruct.MatchKeys(gstruct.IgnoreExtras, gstruct.Keys{
			"major":      Equal("1"),
			"minor":      Equal("28"),
			"gitVersion": MatchRegexp(`^v1\.28\.0\+svc`),
			"goVersion":  HavePrefix("go1."),
			"platform":   ContainSubstring("/"),
		}))
	})

	It("serves the versions of its release, and no others", func() {
		versions := lines(k.run("api-versions"))
		Expect(versions).To(ContainElements(
			"v1", "apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "policy/v1",
			"networking.k8s.io/v1", "discovery.k8s.io/v1", "events.k8s.io/v1", "coordination.k8s.io/v1",
			"node.k8s.io/v1", "scheduling.k8s.io/v1", "storage.k8s.io/v1", "rbac.authorization.k8s.io/v1",
			"certificates.k8s.io/v1", "admissionregistration.k8s.io/v1",
			"flowcontrol.apiserver.k8s.io/v1beta2", "flowcontrol.apiserver.k8s.io/v1beta3",
			"apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1",
			"authentication.k8s.io/v1", "authorization.k8s.io/v1",
		))
		Expect(versions).NotTo(ContainElement("flowcontrol.apiserver.k8s.io/v1"), "came with 1.29")
		Expect(versions).NotTo(ContainElement("batch/v1beta1"), "went with 1.25")
		Expect(versions).NotTo(ContainElement(ContainSubstring("alpha")), "off by default")
	})

	DescribeTable("names every resource as Kubernetes does", func(row string) {
		Eventually(k.resources).Should(ContainElement(row))
	},
		Entry(nil, "bindings v1 true Binding"),
		Entry(nil, "componentstatuses cs v1 false ComponentStatus"),
		Entry(nil, "configmaps cm v1 true ConfigMap"),
		Entry(nil, "endpoints ep v1 true Endpoints"),
		Entry(nil, "events ev v1 true Event"),
		Entry(nil, "limitranges limits v1 true LimitRange"),
		Entry(nil, "namespaces ns v1 false Namespace"),
		Entry(nil, "nodes no v1 false Node"),
		Entry(nil, "persistentvolumeclaims pvc v1 true PersistentVolumeClaim"),
		Entry(nil, "persistentvolumes pv v1 false PersistentVolume"),
		Entry(nil, "nodes metrics.k8s.io/v1beta1 false NodeMetrics"),
		Entry(nil, "pods po v1 true Pod"),
		Entry(nil, "pods metrics.k8s.io/v1beta1 true PodMetrics"),
		Entry(nil, "podtemplates v1 true PodTemplate"),
		Entry(nil, "replicationcontrollers rc v1 true ReplicationController"),
		Entry(nil, "resourcequotas quota v1 true ResourceQuota"),
		Entry(nil, "secrets v1 true Secret"),
		Entry(nil, "serviceaccounts sa v1 true ServiceAccount"),
		Entry(nil, "services svc v1 true Service"),
		Entry(nil, "mutatingwebhookconfigurations admissionregistration.k8s.io/v1 false MutatingWebhookConfiguration"),
		Entry(nil, "validatingwebhookconfigurations admissionregistration.k8s.io/v1 false ValidatingWebhookConfiguration"),
		Entry(nil, "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition"),
		Entry(nil, "apiservices apiregistration.k8s.io/v1 false APIService"),
		Entry(nil, "controllerrevisions apps/v1 true ControllerRevision"),
		Entry(nil, "daemonsets ds apps/v1 true DaemonSet"),
		Entry(nil, "deployments deploy apps/v1 true Deployment"),
		Entry(nil, "replicasets rs apps/v1 true ReplicaSet"),
		Entry(nil, "statefulsets sts apps/v1 true StatefulSet"),
		Entry(nil, "selfsubjectreviews authentication.k8s.io/v1 false SelfSubjectReview"),
		Entry(nil, "selfsubjectaccessreviews authorization.k8s.io/v1 false SelfSubjectAccessReview"),
		Entry(nil, "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler"),
		Entry(nil, "cronjobs cj batch/v1 true CronJob"),
		Entry(nil, "jobs batch/v1 true Job"),
		Entry(nil, "certificatesigningrequests csr certificates.k8s.io/v1 false CertificateSigningRequest"),
		Entry(nil, "leases coordination.k8s.io/v1 true Lease"),
		Entry(nil, "endpointslices discovery.k8s.io/v1 true EndpointSlice"),
		Entry(nil, "events ev events.k8s.io/v1 true Event"),
		Entry(nil, "flowschemas flowcontrol.apiserver.k8s.io/v1beta3 false FlowSchema"),
		Entry(nil, "prioritylevelconfigurations flowcontrol.apiserver.k8s.io/v1beta3 false PriorityLevelConfiguration"),
		Entry(nil, "ingressclasses networking.k8s.io/v1 false IngressClass"),
		Entry(nil, "ingresses ing networking.k8s.io/v1 true Ingress"),
		Entry(nil, "networkpolicies netpol networking.k8s.io/v1 true NetworkPolicy"),
		Entry(nil, "runtimeclasses node.k8s.io/v1 false RuntimeClass"),
		Entry(nil, "poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget"),
		Entry(nil, "clusterrolebindings rbac.authorization.k8s.io/v1 false ClusterRoleBinding"),
		Entry(nil, "clusterroles rbac.authorization.k8s.io/v1 false ClusterRole"),
		Entry(nil, "rolebindings rbac.authorization.k8s.io/v1 true RoleBinding"),
		Entry(nil, "roles rbac.authorization.k8s.io/v1 true Role"),
		Entry(nil, "priorityclasses pc scheduling.k8s.io/v1 false PriorityClass"),
		Entry(nil, "csidrivers storage.k8s.io/v1 false CSIDriver"),
		Entry(nil, "csinodes storage.k8s.io/v1 false CSINode"),
		Entry(nil, "csistoragecapacities storage.k8s.io/v1 true CSIStorageCapacity"),
		Entry(nil, "storageclasses sc storage.k8s.io/v1 false StorageClass"),
		Entry(nil, "volumeattachments storage.k8s.io/v1 false VolumeAttachment"),
	)

	// As kube-apiserver 1.36 shows them.
	DescribeTable("lists the proxy subresources of nodes, pods and services", func(name, kind string, verbs ...string) {
		var found object
		for _, r := range parse(k.run("get", "--raw", "/api/v1"))["resources"].([]any) {
			if r.(object)["name"] == name {
				found = r.(object)
			}
		}
		Expect(found).To(gstruct.MatchAllKeys(gstruct.Keys{
			"name": Equal(name), "singularName": BeEmpty(), "kind": Equal(kind), "namespaced": Equal(!strings.HasPrefix(name, "nodes")), "verbs": HaveExactElements(verbs),
		}))
	},
		Entry(nil, "pods/log", "Pod", "get"),
		Entry(nil, "pods/exec", "PodExecOptions", "create", "get"),
		Entry(nil, "pods/attach", "PodAttachOptions", "create", "get"),
		Entry(nil, "pods/portforward", "PodPortForwardOptions", "create", "get"),
		Entry(nil, "pods/proxy", "PodProxyOptions", "create", "delete", "get", "patch", "update"),
		Entry(nil, "nodes/proxy", "NodeProxyOptions", "create", "delete", "get", "patch", "update"),
		Entry(nil, "services/proxy", "ServiceProxyOptions", "create", "delete", "get", "patch", "update"),
	)

	It("describes the proxy subresources in OpenAPI, with their parameters", func() {
		paths := parse(k.run("get", "--raw", "/openapi/v3/api/v1"))["paths"].(object)
		const pod, service, node = "/api/v1/namespaces/{namespace}/pods/{name}", "/api/v1/namespaces/{namespace}/services/{name}", "/api/v1/nodes/{name}"
		for path, parameters := range map[string][]string{
			pod + "/log":         {"container", "follow", "insecureSkipTLSVerifyBackend", "limitBytes", "previous", "sinceSeconds", "stream", "tailLines", "timestamps"},
			pod + "/exec":        {"command", "container", "stderr", "stdin", "stdout", "tty"},
			pod + "/attach":      {"container", "stderr", "stdin", "stdout", "tty"},
			pod + "/portforward": {"ports"}, pod + "/proxy": {"path"}, pod + "/proxy/{path}": {"path"},
			service + "/proxy": {"path"}, service + "/proxy/{path}": {"path"}, node + "/proxy": {"path"}, node + "/proxy/{path}": {"path"},
		} {
			Expect(paths).To(HaveKey(path))
			var names []string
			for _, p := range paths[path].(object)["parameters"].([]any) {
				names = append(names, p.(object)["name"].(string))
			}
			Expect(names).To(ContainElements(parameters), path)
		}
	})

	It("reports the health of etcd", func() {
		Eventually(func() []string { return rows(k.run("get", "componentstatuses", "--no-headers")) }).Should(ConsistOf("etcd-0 Healthy ok"))
	})

	It("serves no deletecollection of namespaces", func() {
		for _, resource := range parse(k.run("get", "--raw", "/api/v1"))["resources"].([]any) {
			if r := resource.(map[string]any); r["name"] == "namespaces" {
				Expect(r["verbs"]).To(ConsistOf("create", "delete", "get", "list", "patch", "update", "watch"))
				return
			}
		}
		Fail("no namespaces")
	})

	It("lists the usual kinds in the category all", func() {
		Expect(lines(k.run("api-resources", "--categories=all", "-o", "name"))).To(ConsistOf(
			"pods", "replicationcontrollers", "services",
			"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps",
			"horizontalpodautoscalers.autoscaling", "cronjobs.batch", "jobs.batch",
		))
	})

	It("explains every field of every kind", func() {
		var table []string
		Eventually(func(g Gomega) {
			// The definitions of other specs come and go.
			table = slices.DeleteFunc(k.resources(g), func(row string) bool { return strings.Contains(row, ".example.") })
			g.Expect(len(table)).To(BeNumerically(">=", 50))
		}).Should(Succeed())
		inParallel(table, func(row string) {
			// Short names may be absent: the version is the third from the right.
			columns := strings.Fields(row)
			name, version := columns[0], columns[len(columns)-3]
			text := k.run("explain", name, "--api-version="+version, "--recursive")
			Expect(text).To(And(Or(HavePrefix("GROUP:"), HavePrefix("KIND:")), ContainSubstring("VERSION:"), ContainSubstring("FIELDS:")), name)
			Expect(text).NotTo(ContainSubstring("<empty>"), "%s: a field without a description", name)
		})
	})

	DescribeTable("explains a single field", func(path, kind, text string) {
		Expect(k.run("explain", path)).To(And(ContainSubstring(kind), ContainSubstring(text)))
	},
		Entry(nil, "pods.spec.containers.resources.limits", "map[string]Quantity", "maximum amount of compute resources"),
		Entry(nil, "deployments.spec.strategy.rollingUpdate.maxSurge", "IntOrString", "scheduled above the desired number"),
		Entry(nil, "crd.spec.versions.schema.openAPIV3Schema", "JSONSchemaProps", "schema"),
		Entry(nil, "ingress.spec.rules.http.paths.pathType", "string", "pathType determines the interpretation"),
	)

	It("explains an older version on request", func() {
		Expect(k.run("explain", "hpa", "--api-version=autoscaling/v1", "--recursive")).To(ContainSubstring("targetCPUUtilizationPercentage"))
		Expect(k.run("explain", "flowschemas", "--api-version=flowcontrol.apiserver.k8s.io/v1beta2")).To(ContainSubstring("v1beta2"))
	})

	It("reports an unknown field", func() {
		Expect(k.fails("", "explain", "pods.spec.nonsense")).To(ContainSubstring(`field "nonsense" does not exist`))
	})
})

// rows are the lines of a table with one space between the columns.
func rows(table string) []string {
	var out []string
	for _, line := range lines(table) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return out
}

// inParallel calls f for all items, a few at a time.
func inParallel(items []string, f func(item string)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer GinkgoRecover()
			defer func() { <-slots }()
			f(item)
		})
	}
	wg.Wait()
}
