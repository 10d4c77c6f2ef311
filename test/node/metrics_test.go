package node

import (
	"context"
	"net/http"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
	"svc.dev/svc/test/mixin"
)

// agentMetrics returns the metrics of an agent; none while it does not serve.
func agentMetrics(ctx context.Context, node string) string {
	return agentPath(ctx, node, "/metrics")
}

func agentPath(ctx context.Context, of, path string) string {
	GinkgoHelper()
	code, body, err := launch.Get(ctx, rest.CopyConfig(node.Config), "/api/v1/nodes/"+of+"/proxy"+path)
	Expect(err).NotTo(HaveOccurred())
	if code != http.StatusOK {
		return ""
	}
	return body
}

var _ = Describe("the agent's metrics", func() {
	It("have what the rules, alerts and dashboards of kubernetes-mixin select", func(ctx SpecContext) {
		s := newSpace(ctx)
		// The second pod makes a request to the container runtime fail.
		s.apply(ctx, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: measured}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
---
apiVersion: v1
kind: Pod
metadata: {name: failing}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "localhost:1/none:1"}]
`)
		s.await(ctx, "measured", beReady())
		Eventually(func() []string {
			agentPath(ctx, nodeName(), "/stats/summary") // measures volumes
			return mixin.Missing(agentMetrics(ctx, nodeName()), slices.Concat(mixin.Kubelet, mixin.Volumes))
		}).Should(BeEmpty())
	})
})
