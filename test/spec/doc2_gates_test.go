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
		pods = "/api/v1/namespaces/default/pods"
		body = `{"metadata":{"name":"gated"},"spec":{"initContainers":[{"name":"side","image":"i","restartPolicy":"Always"}],"containers":[{"name":"c","image":"i"}]}}`
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

	It("a field of a feature in alpha is dropped, and stays with its gate", func(ctx SpecContext) {
		initContainers := func(obj object) []any { return obj["spec"].(object)["initContainers"].([]any) }
		Expect(initContainers(create(ctx, start(ctx)))[0]).NotTo(HaveKey("restartPolicy"))
		Expect(warnings).To(ConsistOf(`299 - "field \"restartPolicy\" is dropped: the feature gate SidecarContainers is off"`))
		Expect(initContainers(create(ctx, start(ctx, "--feature-gates=SidecarContainers=true")))[0]).To(HaveKeyWithValue("restartPolicy", "Always"))
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
