package spec

import (
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
})
