package e2e

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

var _ = Describe("cluster IP addresses", func() {
	const (
		services  = "/api/v1/namespaces/default/services"
		addresses = "/apis/networking.k8s.io/v1/ipaddresses"
		cidrs     = "/apis/networking.k8s.io/v1/servicecidrs"
		ready     = `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	)
	post := func(ctx context.Context, d *data, path, body string) launch.Response {
		GinkgoHelper()
		resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "POST", Path: path, ContentType: "application/json", Body: body})
		Expect(err).NotTo(HaveOccurred())
		return resp
	}
	service := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"ports":[{"port":80}]}}`
	}
	withAddress := func(name, address string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"clusterIP":"` + address + `","ports":[{"port":80}]}}`
	}
	// parents returns the services of all addresses, by address.
	parents := func(ctx context.Context, d *data) map[string]string {
		GinkgoHelper()
		all := map[string]string{}
		for _, item := range d.send(ctx, "GET", addresses, "")["items"].([]any) {
			o := item.(map[string]any)
			all[o["metadata"].(map[string]any)["name"].(string)] = o["spec"].(map[string]any)["parentRef"].(map[string]any)["name"].(string)
		}
		return all
	}

	It("are objects since 1.33, also of services that an older release has written", func(ctx SpecContext) {
		d := newData()
		d.start(ctx, "--release=1.28", "--dns=false", "--service-cluster-ip-range=10.0.0.0/24")
		d.send(ctx, "POST", services, withAddress("old", "10.0.0.40"))

		d.start(ctx, "--release=1.33", "--dns=false", "--service-cluster-ip-range=10.0.0.0/24")
		Expect(parents(ctx, d)).To(Equal(map[string]string{"10.0.0.1": "kubernetes", "10.0.0.40": "old"}))
		Eventually(func() any { return d.send(ctx, "GET", "/api/v1/namespaces/default/events", "")["items"] }).
			Should(ContainElement(And(HaveKeyWithValue("reason", "ClusterIPNotAllocated"), HaveKeyWithValue("involvedObject", HaveKeyWithValue("name", "old")))))
		made := d.send(ctx, "GET", cidrs+"/kubernetes", "")
		Expect(made).To(And(HaveKeyWithValue("spec", HaveKeyWithValue("cidrs", ConsistOf("10.0.0.0/24"))),
			HaveKeyWithValue("status", HaveKeyWithValue("conditions", ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "True")))))))
		d.send(ctx, "POST", services, withAddress("new", "10.0.0.41"))
		Expect(d.send(ctx, "GET", addresses+"/10.0.0.41", "")).To(And(
			HaveKeyWithValue("metadata", HaveKeyWithValue("labels", Equal(map[string]any{"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}))),
			HaveKeyWithValue("spec", HaveKeyWithValue("parentRef", Equal(map[string]any{"resource": "services", "namespace": "default", "name": "new"})))))

		By("an object that was deleted by hand comes back, and one of a user keeps its address from services")
		d.send(ctx, "DELETE", addresses+"/10.0.0.41", "")
		d.send(ctx, "POST", addresses, `{"metadata":{"name":"10.0.0.42"},"spec":{"parentRef":{"group":"gateway.networking.k8s.io","resource":"gateways","namespace":"default","name":"gate"}}}`)
		Expect(post(ctx, d, services, withAddress("third", "10.0.0.42"))).To(And(HaveField("Status", 422), HaveField("Body", ContainSubstring("provided IP is already allocated"))))
		d.start(ctx, "--release=1.33", "--dns=false", "--service-cluster-ip-range=10.0.0.0/24")
		Expect(parents(ctx, d)).To(Equal(map[string]string{"10.0.0.1": "kubernetes", "10.0.0.40": "old", "10.0.0.41": "new", "10.0.0.42": "gate"}))

		By("without the gate they are as before, and what is left is repaired with it")
		d.start(ctx, "--release=1.33", "--feature-gates=MultiCIDRServiceAllocator=false", "--dns=false", "--service-cluster-ip-range=10.0.0.0/24")
		d.send(ctx, "DELETE", services+"/new", "")
		d.send(ctx, "POST", services, withAddress("later", "10.0.0.41"))
		Expect(parents(ctx, d)).To(HaveKeyWithValue("10.0.0.41", "new"))
		d.start(ctx, "--release=1.34", "--dns=false", "--service-cluster-ip-range=10.0.0.0/24")
		Expect(parents(ctx, d)).To(HaveKeyWithValue("10.0.0.41", "later"))
		d.send(ctx, "DELETE", services+"/later", "")
		Expect(parents(ctx, d)).NotTo(HaveKey("10.0.0.41"))
	})

	It("come from an added range when the first is exhausted, each once under concurrent requests", func(ctx SpecContext) {
		d := newData()
		// 14 addresses, of which the service kubernetes has one.
		d.start(ctx, "--release=latest", "--dns=false", "--service-cluster-ip-range=10.0.0.0/28")
		d.send(ctx, "POST", cidrs, `{"metadata":{"name":"added"},"spec":{"cidrs":["10.1.0.0/28"]}}`)
		create := func(prefix string, number int) (made, full int) {
			GinkgoHelper()
			var mu sync.Mutex
			var group sync.WaitGroup
			for i := range number {
				group.Go(func() {
					defer GinkgoRecover()
					resp := post(ctx, d, services, service(fmt.Sprint(prefix, i)))
					mu.Lock()
					defer mu.Unlock()
					switch resp.Status {
					case 201:
						made++
					default:
						Expect(resp.Body).To(ContainSubstring("range is full"))
						full++
					}
				})
			}
			group.Wait()
			return made, full
		}
		made, full := create("first-", 20)
		Expect([]int{made, full}).To(Equal([]int{13, 7}), "before the added range is ready")
		resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "PATCH", Path: cidrs + "/added/status", ContentType: "application/merge-patch+json", Body: ready})
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Status).To(Equal(200), resp.Body)
		Eventually(func() int { return post(ctx, d, services, service("second")).Status }).Should(Equal(201))
		made, full = create("third-", 20)
		Expect([]int{made, full}).To(Equal([]int{13, 7}))

		seen := map[string]string{}
		for _, item := range d.send(ctx, "GET", services, "")["items"].([]any) {
			o := item.(map[string]any)
			name, address := o["metadata"].(map[string]any)["name"].(string), o["spec"].(map[string]any)["clusterIP"].(string)
			Expect(seen).NotTo(HaveKey(address), name)
			seen[address] = name
		}
		Expect(seen).To(HaveLen(28))
		Expect(parents(ctx, d)).To(Equal(seen))
		metrics, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "GET", Path: "/metrics"})
		Expect(err).NotTo(HaveOccurred())
		for _, cidr := range []string{"10.0.0.0/28", "10.1.0.0/28"} {
			Expect(metrics.Body).To(ContainSubstring(`kube_apiserver_clusterip_allocator_allocated_ips{cidr="` + cidr + `"} 14`))
		}
	})
})
