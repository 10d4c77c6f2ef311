package deployed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"svc.dev/svc/test/launch"
)

const workload = `
apiVersion: v1
kind: ConfigMap
metadata: {name: page}
data: {index.html: "hello from the fleet\n"}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: localhost/svc/busybox:1
        imagePullPolicy: Never
        command: [sh, -c, 'echo "serving on $(hostname)"; exec httpd -f -p 8080 -h /page']
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: page, mountPath: /page}]
      volumes: [{name: page, configMap: {name: page}}]
`

// talker ends when it has read a line.
const talker = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"talker"},"spec":{"restartPolicy":"Never","automountServiceAccountToken":false,"containers":[{
	"name":"c","image":"localhost/svc/busybox:1","imagePullPolicy":"Never","stdin":true,"stdinOnce":true,"command":["sh","-c","read line; echo heard: $line"]}]}}`

var _ = Describe("the fleet of config/aggregated as it is", func() {
	It("is reached at the host, and leaves nothing behind when it is removed", func(ctx SpecContext) {
		createVolumes(ctx, "alone", 1)
		before := inventory(ctx)
		undeploy := undeployOnce(render(ctx, root, ""))
		install(ctx, "-k", filepath.Join(root, "config", "aggregated"))
		Expect(kubectl(onHost, "get", "pods.core.svc.dev", "-A", "-o", "name")).To(BeEmpty())
		kubectl(onHost, "rollout", "status", "-n", "svc-system", "deployment/svc-controller-manager", "--timeout=2m")
		AddReportEntry("memory of the processes, resident now and at most", memory())
		undeploy(ctx)
		awaitInventory(ctx, before)
	})
})

// components are those of the fleet that all other specs share: three members of etcd, of
// which one may end, and what machines need that join.
var components = []string{"three-etcd", "machines"}

var _ = Describe("a fleet in pods of its host", Ordered, ContinueOnFailure, func() {
	var before []string
	var undeploy func(context.Context)

	BeforeAll(func(ctx SpecContext) {
		createVolumes(ctx, "etcd", 3)
		before = inventory(ctx)
		undeploy = undeployOnce(rendered())
		deploy(ctx)
		connectFleet(ctx)
	})

	It("answers at the host, and at its own address", func() {
		Expect(kubectl(onHost, "get", "pods.core.svc.dev", "-A", "-o", "name")).To(BeEmpty())
		Expect(kubectl(onFleet, "version", "-o", "json")).To(ContainSubstring("serverVersion"))
		kubectl(onHost, "rollout", "status", "-n", "svc-system", "deployment/svc-controller-manager", "--timeout=2m")
	})

	Context("a machine that joins it", machine)

	faults()

	It("is as it was after its backup has been restored", func(ctx SpecContext) {
		kubectl(onHost, "create", "namespace", "kept")
		DeferCleanup(func() { kubectl(onHost, "delete", "namespace", "kept", "--timeout=3m") })
		kubectl(onFleet, "create", "configmap", "kept", "-n", "kept", "--from-literal=is=backed-up")
		snapshot := filepath.Join(dir, "fleet.db")
		script(ctx, "hack/backup.sh", snapshot)
		kubectl(onFleet, "create", "configmap", "later", "-n", "kept")
		kubectl(onFleet, "patch", "configmap", "kept", "-n", "kept", "--type=merge", "-p", `{"data":{"is":"later"}}`)
		newest, err := fleetClient.CoreV1().ConfigMaps("kept").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())

		script(ctx, "hack/restore.sh", snapshot)
		Eventually(func() string {
			stdout, _, _ := onFleet.Run(ctx, "", "get", "configmaps", "-n", "kept", "-o", "jsonpath={.items[*].metadata.name} {.items[*].data.is}")
			return stdout
		}).Should(Equal("kept backed-up"))
		restored, err := fleetClient.CoreV1().ConfigMaps("kept").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		order, err := resourceversion.CompareResourceVersion(restored.ResourceVersion, newest.ResourceVersion)
		Expect(err).NotTo(HaveOccurred())
		Expect(order).To(BeNumerically(">", 0), "clients that have seen later objects read again")
		kubectl(onFleet, "create", "deployment", "later", "-n", "kept", "--image=registry.example.com/later")
		Eventually(func() string { return kubectl(onFleet, "get", "pods", "-n", "kept", "-o", "name") }).Should(HavePrefix("pod/later-"), "the controllers work on")
	})

	It("leaves nothing behind when it is removed", func(ctx SpecContext) {
		undeploy(ctx)
		awaitInventory(ctx, before)
	})
})

// machine are the specs of a machine of the fleet.
func machine() {
	BeforeAll(func(ctx SpecContext) {
		agent := join(ctx, newMachine(ctx), "machine-1")
		DeferCleanup(func() {
			agent.Kill()
			kubectl(onFleet, "delete", "node", "machine-1")
		})
		Expect(kubectl(onHost, "get", "nodes.core.svc.dev", "-o", "name")).To(Equal("node.core.svc.dev/machine-1\n"))

		kubectl(onHost, "create", "namespace", "team")
		DeferCleanup(func() { kubectl(onHost, "delete", "namespace", "team", "--timeout=2m") })
		apply(onFleet, workload, "apply", "--server-side", "--field-manager=helm", "-n", "team", "-f", "-")
		kubectl(onFleet, "rollout", "status", "-n", "team", "deployment/web", "--timeout=2m")
	})

	It("runs workloads of unmodified clients: apply, rollout, logs and exec", func(ctx SpecContext) {
		Expect(kubectl(onFleet, "logs", "-n", "team", "deployment/web")).To(HavePrefix("serving on web-"))
		Expect(kubectl(onFleet, "exec", "-n", "team", "deployment/web", "--", "cat", "/page/index.html")).To(Equal("hello from the fleet\n"))
		ip := kubectl(onFleet, "get", "pods", "-n", "team", "-o", "jsonpath={.items[0].status.podIP}")
		Expect(get(ctx, "http://"+ip+":8080/")).To(Equal("hello from the fleet\n"))

		By("streams that are upgraded connections: attach, logs -f and port-forward")
		pod := strings.TrimSpace(kubectl(onFleet, "get", "pods", "-n", "team", "-o", "jsonpath={.items[0].metadata.name}"))
		apply(onFleet, talker, "create", "-n", "team", "-f", "-")
		kubectl(onFleet, "wait", "-n", "team", "pod/talker", "--for=condition=Ready", "--timeout=2m")
		Expect(apply(onFleet, "hear this\n", "attach", "-i", "-n", "team", "talker")).To(ContainSubstring("heard: hear this"))
		Expect(kubectl(onFleet, "logs", "-f", "-n", "team", "talker")).To(ContainSubstring("heard: hear this"), "until the container has ended")
		kubectl(onFleet, "delete", "pod", "talker", "-n", "team")
		for _, protocol := range []string{"true", "false"} { // websockets, SPDY
			onFleet := onFleet
			onFleet.Env = []string{"KUBECTL_PORT_FORWARD_WEBSOCKETS=" + protocol, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + protocol}
			Expect(forwarded(ctx, onFleet, "-n", "team", "pod/"+pod, ":8080")).To(Equal("hello from the fleet\n"))
			Expect(kubectl(onFleet, "exec", "-n", "team", pod, "--", "cat", "/page/index.html")).To(Equal("hello from the fleet\n"))
		}
		kubectl(onFleet, "rollout", "restart", "-n", "team", "deployment/web")
		kubectl(onFleet, "rollout", "status", "-n", "team", "deployment/web", "--timeout=2m")
	})

	It("has pods and nodes that the host does not see, and sees none of the host's", func() {
		Expect(kubectl(onHost, "get", "pods", "-n", "team", "-o", "name")).To(BeEmpty())
		Expect(kubectl(onHost, "get", "nodes", "-o", "name")).To(Equal("node/host-node\n"))
		Eventually(func() string {
			return kubectl(onFleet, "get", "pods", "-A", "-o", `jsonpath={.items[*].metadata.namespace}`)
		}).Should(Equal("team team"))
	})

	It("is reached through the fleet's own address no further than network policies allow", func(ctx SpecContext) {
		names := strings.Fields(kubectl(onFleet, "get", "pods", "-n", "team", "-l", "app=web", "-o", "name"))
		_, pod, _ := strings.Cut(names[0], "/")
		proxied := func() string {
			stdout, stderr, _ := onFleet.Run(ctx, "", "get", "--raw", "/api/v1/namespaces/team/pods/"+pod+":8080/proxy/")
			return stdout + stderr
		}
		Eventually(proxied).Should(Equal("hello from the fleet\n"))
		apply(onFleet, `{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"closed"},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}`, "create", "-n", "team", "-f", "-")
		Eventually(proxied).ShouldNot(ContainSubstring("hello"))
		kubectl(onFleet, "delete", "networkpolicy", "closed", "-n", "team")
		Eventually(proxied).Should(Equal("hello from the fleet\n"))
	})
}

// render writes the manifests of a source tree's config/aggregated with components, and with
// an image of svc, to svc.yaml, and returns its name.
func render(ctx context.Context, tree, image string, components ...string) string {
	GinkgoHelper()
	return renderPatched(ctx, tree, image, nil, components...)
}

// renderPatched is render with patches of kustomize.
func renderPatched(ctx context.Context, tree, image string, patches []map[string]any, components ...string) string {
	GinkgoHelper()
	config := filepath.Join(dir, "config")
	Expect(os.MkdirAll(config, 0o700)).To(Succeed())
	to := func(path string) string {
		relative, err := filepath.Rel(config, filepath.Join(tree, "config", path))
		Expect(err).NotTo(HaveOccurred())
		return relative
	}
	paths := []string{}
	for _, component := range components {
		paths = append(paths, to("components/"+component))
	}
	kustomization, err := json.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{to("aggregated")}, "components": paths, "patches": patches,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(filepath.Join(config, "kustomization.yaml"), kustomization, 0o600)).To(Succeed())
	manifests := rendered()
	scriptWith(ctx, []string{"IMAGE=" + image}, "hack/manifests.sh", config, manifests)
	return manifests
}

// rendered is the file of the manifests that render has written last.
func rendered() string { return filepath.Join(dir, "svc.yaml") }

// undeployOnce returns what removes a fleet. It is called after the spec, or the container,
// at the latest: also if the one that does it was not selected, or another failed.
func undeployOnce(manifests string) (undeploy func(context.Context)) {
	done := false
	undeploy = func(ctx context.Context) {
		if !done {
			script(ctx, "hack/undeploy.sh", manifests)
			done = true
		}
	}
	DeferCleanup(func(ctx SpecContext) { undeploy(ctx) })
	return undeploy
}

// deploy does what `make deploy` does, with PREVIOUS in that source tree, and waits until the
// host reaches all groups.
func deploy(ctx context.Context) {
	GinkgoHelper()
	var manifests string
	if previous := os.Getenv("PREVIOUS"); previous == "" {
		manifests = render(ctx, root, "", components...)
	} else {
		importArchive(ctx, filepath.Join(previous, "dist", "svc.tar"))
		manifests = render(ctx, previous, "svc:previous", components...)
	}
	// The Secret that the component machines needs: the API servers start with it only.
	kubectl(onHost, "create", "namespace", "svc-system")
	authority := kube.Cluster().Authority
	Expect(authority.Client(dir, "machines", "svc-apiserver")).To(Succeed())
	kubectl(onHost, "create", "secret", "generic", "svc-machines", "-n", "svc-system", "--from-file=ca.crt="+authority.File,
		"--from-file=tls.crt="+filepath.Join(dir, "machines.crt"), "--from-file=tls.key="+filepath.Join(dir, "machines.key"))
	install(ctx, "--server-side", "--force-conflicts", "-f", manifests)
}

// install runs kubectl apply, waits until the host reaches all groups, and reports how long
// that took.
func install(ctx context.Context, args ...string) {
	GinkgoHelper()
	began := time.Now()
	kubectl(onHost, append([]string{"apply"}, args...)...)
	registered := aggregator.NewForConfigOrDie(kube.Config).ApiregistrationV1().APIServices()
	Eventually(func(g Gomega) {
		list, err := registered.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=svc"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).NotTo(BeEmpty())
		for _, item := range list.Items {
			g.Expect(item.Status.Conditions).To(ContainElement(And(HaveField("Type", apiregistrationv1.Available), HaveField("Status", apiregistrationv1.ConditionTrue))), item.Name)
		}
	}).Should(Succeed())
	available := time.Since(began)
	// The host sends no requests before some moments later.
	Eventually(func() error {
		_, _, err := onHost.Run(ctx, "", "get", "nodes.core.svc.dev,events.events.svc.dev", "-A")
		if err == nil {
			_, _, err = onHost.Run(ctx, "", "get", "--raw", fleetPath+"/version")
		}
		return err
	}).Should(Succeed())
	AddReportEntry("time from the beginning of apply", fmt.Sprintf("all APIServices Available after %s, kubectl has answers after %s", available, time.Since(began)))
}

// createVolumes creates volumes for members of etcd: directories of the host's node, as a
// storage class of the host would.
func createVolumes(ctx context.Context, prefix string, count int) {
	GinkgoHelper()
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		directory := filepath.Join(dir, name)
		Expect(os.Mkdir(directory, 0o700)).To(Succeed())
		Expect(os.Chown(directory, etcdUser, etcdUser)).To(Succeed())
		Expect(os.Chmod(dir, 0o755)).To(Succeed()) //nolint:gosec // the user of the pods passes it
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")},
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}},
			},
		}
		_, err := hostClient.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// etcdUser is the user of etcd's pods in config/aggregated.
const etcdUser = 65532

// forwarded returns what a port of a pod answers through kubectl port-forward.
func forwarded(ctx context.Context, k launch.Kubectl, args ...string) string {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, err := k.Command(ctx, append([]string{"port-forward"}, args...)...)
	Expect(err).NotTo(HaveOccurred())
	forward, err := launch.StartCommand(cmd)
	Expect(err).NotTo(HaveOccurred())
	defer forward.Kill()
	var port string
	Eventually(func() string {
		_, rest, _ := strings.Cut(forward.Output(), "Forwarding from 127.0.0.1:")
		port, _, _ = strings.Cut(rest, " ")
		return port
	}).ShouldNot(BeEmpty(), forward.Output)
	return get(ctx, "http://127.0.0.1:"+port+"/")
}

// memory returns what the processes of the fleet have in memory.
func memory() string {
	GinkgoHelper()
	var lines []string
	for _, words := range []string{"apiserver --etcd-servers=", "controller-manager --svcconfig=/etc/svc/", "--name=svc-etcd-"} {
		for _, pid := range processes(words) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has ended
			}
			Expect(err).NotTo(HaveOccurred())
			line := words
			for _, field := range strings.Split(string(status), "\n") {
				if strings.HasPrefix(field, "VmRSS:") || strings.HasPrefix(field, "VmHWM:") {
					line += " " + strings.Join(strings.Fields(field), " ")
				}
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// awaitInventory waits until the host has the same objects as before.
func awaitInventory(ctx context.Context, before []string) {
	GinkgoHelper()
	Eventually(func() []string {
		return sets.List(sets.New(inventory(ctx)...).SymmetricDifference(sets.New(before...)))
	}).Should(BeEmpty(), "what was left or taken")
}

// inventory returns the names of all objects of the host but those that come and go by
// themselves.
func inventory(ctx context.Context) []string {
	GinkgoHelper()
	lists, err := hostClient.Discovery().ServerPreferredResources()
	Expect(err).NotTo(HaveOccurred())
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	client := metadata.NewForConfigOrDie(kube.Config)
	var names []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if slices.Contains([]string{"csinodes", "events", "leases"}, resource.Name) {
				continue
			}
			found, err := client.Resource(gv.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred(), resource.Name)
			for _, object := range found.Items {
				names = append(names, fmt.Sprintf("%s %s/%s", gv.WithResource(resource.Name).GroupResource(), object.Namespace, object.Name))
			}
		}
	}
	slices.Sort(names)
	return names
}

// get returns what a URL answers.
func get(ctx context.Context, url string) string {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// reportPods reports the fleet's pods and their logs.
func reportPods(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "pods", "-n", "svc-system", "-o", "wide"},
		{"get", "apiservices", "-l", "app.kubernetes.io/part-of=svc"},
		{"get", "events", "-n", "svc-system"},
		{"logs", "-n", "svc-system", "-l", "app.kubernetes.io/name=svc-apiserver", "--tail=40"},
		{"logs", "-n", "svc-system", "-l", "app.kubernetes.io/name=svc-controller-manager", "--tail=40"},
		{"logs", "-n", "svc-system", "-l", "app.kubernetes.io/name=svc-etcd", "--tail=20"},
	} {
		stdout, stderr, err := onHost.Run(ctx, "", args...)
		AddReportEntry(strings.Join(args, " "), fmt.Sprintln(stdout, stderr, err))
	}
}
