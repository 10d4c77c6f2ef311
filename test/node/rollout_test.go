package node

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/node/requests"
)

// underLoad is a service with two pods on each of some nodes. A pod serves for ten seconds
// after it was told to end: until no node sends it connections any more.
func underLoad(nodes []string) string {
	manifest := `
apiVersion: v1
kind: Service
metadata: {name: loaded}
spec: {selector: {app: loaded}, ports: [{port: 80, targetPort: 8080}]}
`
	for _, node := range nodes {
		manifest += strings.ReplaceAll(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: loaded-NODE}
spec:
  replicas: 2
  selector: {matchLabels: {app: loaded, node: NODE}}
  template:
    metadata: {labels: {app: loaded, node: NODE}}
    spec:
      nodeName: NODE
      terminationGracePeriodSeconds: 60
      containers:
      - name: main
        image: localhost/svc/server:1
        args: [--delay=10s]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 60}
`, "NODE", node)
	}
	return manifest
}

// loadRate returns how many requests a second each client sends: LOAD=1000 sets it.
func loadRate() int {
	GinkgoHelper()
	rate, err := strconv.Atoi(cmp.Or(os.Getenv("LOAD"), "250"))
	Expect(err).NotTo(HaveOccurred(), "LOAD")
	Expect(rate).To(BeNumerically(">", 0), "LOAD")
	return rate
}

// startUnderLoad creates the service underLoad, and returns its URL when it answers.
func startUnderLoad(ctx context.Context, s space, nodes ...string) string {
	GinkgoHelper()
	s.apply(ctx, underLoad(nodes))
	awaitRollout(ctx, s, nodes)
	url := "http://" + s.run(ctx, "get", "service", "loaded", "-o=jsonpath={.spec.clusterIP}") + "/"
	Eventually(func() (string, error) { return get(ctx, url) }).ShouldNot(BeEmpty())
	return url
}

func awaitRollout(ctx context.Context, s space, nodes []string) {
	GinkgoHelper()
	for _, node := range nodes {
		s.run(ctx, "rollout", "status", "deployment/loaded-"+node, "--timeout=3m")
	}
}

// rollOver replaces all pods of underLoad, and returns when the old ones have ended.
func rollOver(ctx context.Context, s space, nodes ...string) {
	GinkgoHelper()
	for _, node := range nodes {
		s.run(ctx, "rollout", "restart", "deployment/loaded-"+node)
	}
	awaitRollout(ctx, s, nodes)
	Eventually(func() []string {
		return strings.Fields(s.run(ctx, "get", "pods", "--selector=app=loaded", "--output=name"))
	}).Should(HaveLen(2 * len(nodes)))
}

// podClient is a pod of the image server, by its address, which sends requests.
type podClient string

// load calls /load of the pod.
func (address podClient) load(ctx context.Context, method, query string) (status int, answer string) {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(address)+":8080/load?"+query, nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp.StatusCode, string(content)
}

// start begins to send requests at a rate per second.
func (address podClient) start(ctx context.Context, to string, rate int, keepAlive bool) {
	GinkgoHelper()
	query := url.Values{"url": {to}, "rate": {strconv.Itoa(rate)}, "keepalive": {strconv.FormatBool(keepAlive)}}
	status, answer := address.load(ctx, http.MethodPost, query.Encode())
	Expect(status).To(Equal(http.StatusOK), answer)
}

// end stops the requests, all of which must have been answered.
func (address podClient) end(ctx context.Context) {
	GinkgoHelper()
	status, answer := address.load(ctx, http.MethodDelete, "")
	Expect(status).To(Equal(http.StatusOK), answer)
	AddReportEntry("requests of the pod at "+string(address), answer)
}

var _ = Describe("a service under load", func() {
	var s space
	var url string
	BeforeEach(func(ctx SpecContext) {
		s = newSpace(ctx)
		url = startUnderLoad(ctx, s, nodeName())
	})

	It("answers every request of the node and of a pod during a rolling update, of 500 a second by new connections and of others by connections that stay open", func(ctx SpecContext) {
		clients := map[string]podClient{}
		s.apply(ctx, webServer("client", "")+"\n---\n"+webServer("keeping", ""))
		for _, name := range []string{"client", "keeping"} {
			clients[name] = podClient(s.await(ctx, name, beReady()).Status.PodIP)
		}
		clients["client"].start(ctx, url, loadRate(), false)
		clients["keeping"].start(ctx, url, loadRate(), true)
		l := requests.Start(ctx, url, loadRate(), false)
		rollOver(ctx, s, nodeName())
		expectAnswered("requests of the node", l)
		for _, client := range clients {
			client.end(ctx)
		}
	})

	It("answers every request while containerd is killed, and while svc up is, with its agent and API server", func(ctx SpecContext) {
		l := requests.Start(ctx, url, loadRate(), false)
		before := listener(node.Endpoint())
		Expect(syscall.Kill(before, syscall.SIGKILL)).To(Succeed())
		Eventually(func() int { return listener(node.Endpoint()) }).ShouldNot(Or(Equal(before), BeZero()))
		node.Kill()
		out, err := exec.CommandContext(ctx, "nft", "list", "table", "ip", node.Bridge).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		s.run(ctx, "scale", "deployment/loaded-"+nodeName(), "--replicas=3")
		awaitRollout(ctx, s, []string{nodeName()})
		expectAnswered("requests of the node", l)
	})
})

// expectAnswered ends a stream, of which each request must have been answered.
func expectAnswered(name string, l *requests.Stream) {
	GinkgoHelper()
	result, err := l.End()
	Expect(err).NotTo(HaveOccurred())
	AddReportEntry(name, result.String())
}
