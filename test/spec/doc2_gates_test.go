package spec

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 9: feature gates of the release", func() {
	const (
		pods    = "/api/v1/namespaces/default/pods"
		scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?dryRun=All"
		// scaler needs a gate that changes nothing but validation.
		scaler = `{"metadata":{"name":"gated"},"spec":{"minReplicas":0,"maxReplicas":1,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"metrics":[{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"Value","value":"1"}}}]}}`
		body   = `{"metadata":{"name":"gated"},"spec":{"initContainers":[{"name":"side","image":"i","restartPolicy":"Always"}],"containers":[{"name":"c","image":"i"}]}}`
	)
	var warnings []string // of the last create
	create := func(ctx context.Context, s *launch.Server) object {
		GinkgoHelper()
		resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "POST", Path: pods + "?dryRun=All&fieldValidation=Strict", ContentType: "application/json", Body: body})
		Expect(err).NotTo(HaveOccurred())
		warnings = resp.Header.Values("Warning")
		return parse(resp, 201)
	}
	start := func(ctx context.Context, flags ...string) *launch.Server {
		GinkgoHelper()
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		return up(ctx, filepath.Join(dir, "data"), append([]string{launch.NoServiceAccounts}, flags...)...)
	}

	It("a field of a feature in alpha is dropped, a value is refused, and both are accepted with the gate", func(ctx SpecContext) {
		initContainers := func(obj object) []any { return obj["spec"].(object)["initContainers"].([]any) }
		scaleToZero := func(s *launch.Server) launch.Response {
			GinkgoHelper()
			resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "POST", Path: scalers, ContentType: "application/json", Body: scaler})
			Expect(err).NotTo(HaveOccurred())
			return resp
		}
		off, on := start(ctx), start(ctx, "--feature-gates=SidecarContainers=true,HPAScaleToZero=true")
		Expect(scaleToZero(off)).To(And(HaveField("Status", 422), HaveField("Body", ContainSubstring("spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"))))
		parse(scaleToZero(on), 201)
		Expect(initContainers(create(ctx, off))[0]).NotTo(HaveKey("restartPolicy"))
		Expect(warnings).To(ConsistOf(`299 - "field \"restartPolicy\" is dropped: the feature gate SidecarContainers is off"`))
		Expect(initContainers(create(ctx, on))[0]).To(HaveKeyWithValue("restartPolicy", "Always"))
		Expect(warnings).To(BeEmpty())
		Expect(initContainers(create(ctx, start(ctx, "--release=1.29")))[0]).To(HaveKeyWithValue("restartPolicy", "Always"))
	})

	DescribeTable("a gate that the release does not have, or has locked, is refused",
		func(ctx SpecContext, release, gate, message string) {
			Expect(refused(ctx, "--release="+release, "--feature-gates="+gate)).To(ContainSubstring(message))
		},
		Entry(nil, "1.22", "SidecarContainers=true", "--feature-gates: release 1.22 has no feature gate SidecarContainers: releases 1.28 to 1.36 have it"),
		Entry(nil, "1.37", "SidecarContainers=true", "--feature-gates: release 1.37 has no feature gate SidecarContainers: releases 1.28 to 1.36 have it"),
		Entry(nil, "1.33", "SidecarContainers=false", "cannot set feature gate SidecarContainers to false, feature is locked to true"),
	)
})
