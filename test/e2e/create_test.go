package e2e

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl create", everyRelease, func() {
	var k *sandbox
	BeforeEach(func(ctx SpecContext) { k = newSandbox(ctx) })

	DescribeTable("makes what its generators generate", func(command, created, path, value string) {
		Expect(k.run(append([]string{"create"}, strings.Fields(command)...)...)).To(Equal(created + " created\n"))
		Expect(k.field(path, created)).To(Equal(value))
		Expect(k.run("delete", created)).To(ContainSubstring("deleted"))
	},
		Entry(nil, "configmap colours --from-literal=sky=blue", "configmap/colours", "{.data.sky}", "blue"),
		Entry(nil, "secret generic login --from-literal=user=ann", "secret/login", "{.data.user} {.type}", "YW5u Opaque"),
		Entry(nil, "secret docker-registry hub --docker-username=u --docker-password=p", "secret/hub", "{.type}", "kubernetes.io/dockerconfigjson"),
		Entry(nil, "serviceaccount robot", "serviceaccount/robot", "{.metadata.name}", "robot"),
		Entry(nil, "deployment web --image=nginx --replicas=3 --port=80", "deployment.apps/web", "{.spec.replicas} {.spec.template.spec.containers[0].image}", "3 nginx"),
		Entry(nil, since("1.22"), "job once --image=busybox -- echo hello", "job.batch/once", "{.spec.template.spec.containers[0].command} {.spec.backoffLimit} {.spec.completionMode}", `["echo","hello"] 6 NonIndexed`),
		Entry(nil, since("1.21"), "cronjob nightly --image=busybox --schedule=@daily -- true", "cronjob.batch/nightly", "{.spec.concurrencyPolicy}", "Allow"),
		Entry(nil, "service clusterip web --tcp=80:8080", "service/web", "{.spec.type} {.spec.ports[0].targetPort}", "ClusterIP 8080"),
		Entry(nil, "service externalname db --external-name=db.example.com", "service/db", "{.spec.type}{.spec.clusterIP}", "ExternalName"),
		Entry(nil, since("1.19"), "ingress web --rule=example.com/*=web:80", "ingress.networking.k8s.io/web", "{.spec.rules[0].http.paths[0].pathType}", "Prefix"),
		Entry(nil, "quota small --hard=pods=3,cpu=2", "resourcequota/small", "{.spec.hard.pods}", "3"),
		Entry(nil, since("1.21"), "poddisruptionbudget web --selector=app=web --min-available=1", "poddisruptionbudget.policy/web", "{.spec.minAvailable}", "1"),
		Entry(nil, "role reader --verb=get,list --resource=pods,deployments.apps", "role.rbac.authorization.k8s.io/reader", "{.rules[1].apiGroups[0]}", "apps"),
		Entry(nil, "rolebinding readers --role=reader --user=ann", "rolebinding.rbac.authorization.k8s.io/readers", "{.subjects[0].apiGroup}", "rbac.authorization.k8s.io"),
		Entry(nil, "clusterrole e2e-reader --verb=get --non-resource-url=/logs/*", "clusterrole.rbac.authorization.k8s.io/e2e-reader", "{.rules[0].nonResourceURLs[0]}", "/logs/*"),
		Entry(nil, "clusterrolebinding e2e-readers --clusterrole=e2e-reader --group=readers", "clusterrolebinding.rbac.authorization.k8s.io/e2e-readers", "{.roleRef.kind}", "ClusterRole"),
		Entry(nil, since("1.19"), "priorityclass e2e-high --value=1000", "priorityclass.scheduling.k8s.io/e2e-high", "{.preemptionPolicy}", "PreemptLowerPriority"),
	)

	It("makes what run, expose and autoscale generate", since("1.23"), func() {
		Expect(k.run("run", "one", "--image=nginx", "--port=80", "--labels=app=one", "--env=A=b")).To(Equal("pod/one created\n"))
		Expect(k.field("{.status.phase} {.spec.restartPolicy} {.status.qosClass}", "pod/one")).To(Equal("Pending Always BestEffort"))
		Expect(k.run("expose", "pod", "one", "--port=8080", "--target-port=80")).To(Equal("service/one exposed\n"))
		Expect(k.field("{.spec.selector.app} {.spec.ports[0].port} {.spec.sessionAffinity} {.spec.internalTrafficPolicy}", "svc/one")).To(Equal("one 8080 None Cluster"))

		k.run("create", "deployment", "web", "--image=nginx")
		Expect(k.run("autoscale", "deployment", "web", "--min=2", "--max=5", "--cpu=80%")).To(Equal("horizontalpodautoscaler.autoscaling/web autoscaled\n"))
		Expect(k.field("{.spec.minReplicas} {.spec.metrics[0].resource.target.averageUtilization}", "hpa/web")).To(Equal("2 80"))
		Expect(k.field("{.spec.targetCPUUtilizationPercentage}", "horizontalpodautoscalers.v1.autoscaling/web")).To(Equal("80"))
	})

	It("allocates a cluster IP for a service, and a node port if its type needs one", since("1.22"), func() {
		k.run("create", "service", "nodeport", "web", "--tcp=80")
		first := k.field("{.spec.clusterIP} {.spec.clusterIPs[0]} {.spec.ipFamilies[0]} {.spec.ipFamilyPolicy}", "svc/web")
		Expect(first).To(MatchRegexp(`^(10\.[0-9.]+) 10\.[0-9.]+ IPv4 SingleStack$`))
		Expect(k.field("{.spec.ports[0].nodePort}", "svc/web")).To(MatchRegexp(`^3[0-2][0-9]{3}$`))
		k.run("create", "service", "loadbalancer", "lb", "--tcp=80")
		Expect(k.field("{.spec.allocateLoadBalancerNodePorts} {.spec.externalTrafficPolicy}", "svc/lb")).To(Equal("true Cluster"))
		k.run("create", "service", "clusterip", "headless", "--clusterip=None", "--tcp=80")
		Expect(k.field("{.spec.clusterIP}", "svc/headless")).To(Equal("None"))

		taken := k.field("{.spec.clusterIP}", "svc/web")
		manifest := "apiVersion: v1\nkind: Service\nmetadata: {name: thief}\nspec: {clusterIP: " + taken + ", ports: [{port: 80}]}\n"
		Expect(k.fails(manifest, "create", "-f", "-")).To(ContainSubstring("provided IP is already allocated"))
		k.run("delete", "svc", "web")
		k.pipe(manifest, "create", "-f", "-")
	})

	It("generates a name", func() {
		manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: try-}\n"
		Expect(k.pipe(manifest, "create", "-f", "-")).To(MatchRegexp(`^configmap/try-[a-z0-9]{5} created\n$`))
		Expect(k.pipe(manifest, "create", "-f", "-")).To(MatchRegexp(`^configmap/try-[a-z0-9]{5} created\n$`))
		Expect(lines(k.run("get", "cm", "-o", "name"))).To(HaveLen(2))
	})

	It("rejects an object that exists already, and keeps it", func() {
		k.run("create", "cm", "colours", "--from-literal=sky=blue")
		Expect(k.fails("", "create", "cm", "colours", "--from-literal=sky=red")).To(ContainSubstring(`configmaps "colours" already exists`))
		Expect(k.field("{.data.sky}", "cm/colours")).To(Equal("blue"))
	})

	It("rejects missing and invalid fields by name", func() {
		Expect(k.fails("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: b}]}}}\n", "create", "-f", "-")).
			To(ContainSubstring("spec.selector: Required value"))
		Expect(k.fails("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b, imagePullPolicy: Sometimes}]}\n", "create", "-f", "-")).
			To(ContainSubstring(`spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`))
		Expect(k.fails("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 99999}]}\n", "create", "-f", "-")).
			To(ContainSubstring("spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive"))
	})

	It("rejects new objects in a namespace that is terminating or does not exist", func() {
		k.run("create", "namespace", k.Namespace+"-gone")
		k.run("delete", "namespace", k.Namespace+"-gone", "--wait=false")
		Expect(k.fails("", "create", "cm", "late", "-n", k.Namespace+"-gone")).To(Or(ContainSubstring("is being terminated"), ContainSubstring("NotFound")))
		Expect(k.fails("", "create", "cm", "early", "-n", "nowhere")).To(ContainSubstring(`namespaces "nowhere" not found`))
	})
})
