package node

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("an autoscaler", func() {
	It("follows the load of its pods", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: main
        image: localhost/svc/busybox:1
        command: [sh, -c, 'while :; do :; done']
        resources: {requests: {cpu: 5m}, limits: {cpu: 20m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 2
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
`)
		Eventually(func() string { return s.run(ctx, "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") }).Should(Equal("2"))
		Eventually(func() string { return s.run(ctx, "describe", "hpa", "web") }).Should(And(
			MatchRegexp(`resource cpu on pods +\(as a percentage of request\): +\d+% \(\d+m\) / 50%`),
			MatchRegexp(`AbleToScale +True `), MatchRegexp(`ScalingActive +True +ValidMetricFound `), MatchRegexp(`ScalingLimited +True +TooManyReplicas `),
			ContainSubstring("New size: 2; reason: cpu resource utilization (percentage of request) above target"),
		))
	})
})
