package spec

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 2, section 9: kinds of newer releases", func() {
	kinds := []struct {
		// path and other are the collection in two versions.
		path, other, body string
		want              map[string]any
	}{
		{path: "/apis/resource.k8s.io/v1/deviceclasses", other: "/apis/resource.k8s.io/v1beta1/deviceclasses",
			body: `"spec":{"selectors":[{"cel":{"expression":"device.driver == \"a\""}}]}`},
		{path: "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", other: "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims",
			body: `"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}`, want: map[string]any{"spec.devices.requests.0.deviceClassName": "c", "spec.devices.requests.0.count": 1.0}},
		{path: "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", other: "/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaimtemplates",
			body: `"spec":{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}`, want: map[string]any{"spec.spec.devices.requests.0.exactly.allocationMode": "ExactCount"}},
		{path: "/apis/resource.k8s.io/v1/resourceslices", other: "/apis/resource.k8s.io/v1beta1/resourceslices",
			body: `"spec":{"driver":"d","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"d0","attributes":{"model":{"string":"m"}}}]}`,
			want: map[string]any{"spec.nodeName": "n", "spec.devices.0.basic.attributes.model.string": "m"}},
		{path: "/apis/resource.k8s.io/v1/devicetaintrules", other: "/apis/resource.k8s.io/v1beta2/devicetaintrules",
			body: `"spec":{"taint":{"key":"k","effect":"NoSchedule"}}`, want: map[string]any{"spec.taint.effect": "NoSchedule"}},
		{path: "/apis/storagemigration.k8s.io/v1/storageversionmigrations", other: "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations",
			body: `"spec":{"resource":{"resource":"secrets"}}`, want: map[string]any{"spec.resource.resource": "secrets"}},
		{path: "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates", other: "/apis/coordination.k8s.io/v1alpha2/namespaces/default/leasecandidates",
			body: `"spec":{"leaseName":"l","binaryVersion":"1.37.0","emulationVersion":"1.36.0","strategy":"OldestEmulationVersion"}`, want: map[string]any{"spec.leaseName": "l"}},
	}

	It("the latest release serves them, in every version that is turned on", func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		latest := up(ctx, filepath.Join(dir, "data"), "--release=latest", "--runtime-config=api/beta=true,api/alpha=true")
		for _, k := range kinds {
			resp, err := launch.Send(ctx, latest.Config, launch.Request{Method: "POST", Path: k.path, ContentType: "application/json", Body: `{"metadata":{"name":"newer"},` + k.body + `}`})
			Expect(err).NotTo(HaveOccurred())
			parse(resp, 201)
			resp, err = launch.Send(ctx, latest.Config, launch.Request{Method: "GET", Path: k.other + "/newer"})
			Expect(err).NotTo(HaveOccurred())
			expectFields(parse(resp, 200), k.want)
		}
	})

	It("the release of the documents does not serve them", func(ctx SpecContext) {
		for _, k := range kinds {
			Expect(send(ctx, launch.Request{Method: "GET", Path: k.path}).Status).To(Equal(404), k.path)
		}
	})

	It("new expressions have the functions of the release before", func(ctx SpecContext) {
		const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		definition := func(name, rule string) string {
			return `{"metadata":{"name":"` + name + `s.functions.example.com"},"spec":{"group":"functions.example.com","scope":"Cluster","names":{"plural":"` + name + `s","kind":"` + name +
				`"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"string","maxLength":50,"x-kubernetes-validations":[{"rule":"` + rule + `"}]}}}}}]}}`
		}
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		create := func(s *launch.Server, name, rule string) launch.Response {
			GinkgoHelper()
			resp, err := launch.Send(ctx, s.Config, launch.Request{Method: "POST", Path: path, ContentType: "application/json", Body: definition(name, rule)})
			Expect(err).NotTo(HaveOccurred())
			return resp
		}
		quantityOf := func(name, text string) launch.Request {
			return launch.Request{Method: "POST", Path: "/apis/functions.example.com/v1/quantitys", ContentType: "application/json", Body: `{"apiVersion":"functions.example.com/v1","kind":"quantity","metadata":{"name":"` + name + `"},"spec":"` + text + `"}`}
		}
		// The library of addresses came with 1.30, that of quantities with 1.28.
		old, newer := up(ctx, filepath.Join(dir, "old"), "--release=1.30"), up(ctx, filepath.Join(dir, "newer"), "--release=1.31")
		refused := failed(create(old, "address", "isIP(self)"), 422)
		Expect(refused.Message).To(ContainSubstring("undeclared reference to 'isIP'"))
		parse(create(old, "quantity", "isQuantity(self)"), 201)
		Eventually(func(g Gomega) {
			created, err := launch.Send(ctx, old.Config, quantityOf("small", "1e3"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(created.Status).To(Equal(201))
		}).WithTimeout(launch.Patience).Should(Succeed())
		endless, err := launch.Send(ctx, old.Config, quantityOf("endless", "1e-999999999"))
		Expect(err).NotTo(HaveOccurred())
		Expect(failed(endless, 422).Message).To(ContainSubstring("failed rule: isQuantity(self)"))
		parse(create(newer, "address", "isIP(self)"), 201)
	})
})
